#include "engine/convert/recipe.h"

#include <array>
#include <utility>

namespace waste::engine {
namespace {

using kernels::Format;

struct Row {
    TrunkRecipe recipe;
    std::string_view name;
    Format matrix;
    Format fine;
    std::optional<Format> router;  ///< absent: as released
};

constexpr std::array<Row, 5> kRows{{
    {TrunkRecipe::q4, "q4", Format::q4, Format::q8, std::nullopt},
    {TrunkRecipe::q4pure, "q4pure", Format::q4, Format::q4, std::nullopt},
    {TrunkRecipe::q8, "q8", Format::q8, Format::q8, std::nullopt},
    {TrunkRecipe::bf16, "bf16", Format::bf16, Format::bf16, Format::bf16},
    {TrunkRecipe::f32, "f32", Format::f32, Format::f32, Format::f32},
}};

const Row& row_of(TrunkRecipe recipe) {
    return kRows[static_cast<size_t>(recipe)];
}

}  // namespace

std::optional<TrunkRecipe> trunk_recipe_from_name(std::string_view name) {
    for (const Row& row : kRows) {
        if (row.name == name) return row.recipe;
    }
    return std::nullopt;
}

std::string_view trunk_recipe_name(TrunkRecipe recipe) {
    return row_of(recipe).name;
}

Format trunk_format(TrunkRecipe recipe, Role role, container::Dtype released) {
    const Format as_released = released == container::Dtype::bf16 ? Format::bf16 : Format::f32;
    const Row& row = row_of(recipe);
    switch (role) {
        case Role::vector:
            return Format::f32;
        case Role::embedding:
            return as_released;
        case Role::router:
            return row.router.value_or(as_released);
        case Role::matrix:
            return row.matrix;
        case Role::fine_matrix:
        case Role::k_absorb:
        case Role::v_up:
            return row.fine;
    }
    return row.matrix;
}

}  // namespace waste::engine
