#include "tests/support/random_model.h"

#include <cmath>
#include <fstream>
#include <span>

#include "container/file.h"
#include "engine/convert/layout.h"
#include "tests/support/tiny_container.h"

namespace waste::test {
namespace {

using kernels::Format;

Format expert_format(const engine::ModelConfig& config, Format wanted) {
    const bool whole_groups = config.expert_input_size() % kernels::kGroupCols == 0 &&
                              config.moe_intermediate_size % kernels::kGroupCols == 0;
    return wanted == Format::mxfp4 && !whole_groups ? Format::q4 : wanted;
}

std::vector<float> random_weights(const engine::TensorSpec& spec, uint32_t seed) {
    size_t count = 1;
    for (const int64_t dimension : spec.shape) count *= static_cast<size_t>(dimension);
    const bool norm = spec.name.ends_with("norm");
    const float spread = norm ? 0.1f : 1.0f / std::sqrt(static_cast<float>(spec.shape.back()));
    std::vector<float> values = arbitrary_values(count, seed);
    for (float& value : values) value = (norm ? 1.0f : 0.0f) + spread * value;
    return values;
}

Result<void> write_unsynced(const std::string& directory, std::string_view name,
                            std::span<const std::byte> bytes) {
    const std::string path = container::join_path(directory, name);
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
    file.close();
    if (!file) return fail(ErrorKind::io, path, "cannot be written");
    return {};
}

Result<void> write_unsynced(const std::string& directory, const TinyContainer& model) {
    if (const auto ok = container::make_directory(directory); !ok) return ok;
    if (const auto ok = write_unsynced(directory, container::kTrunkName, model.trunk); !ok) return ok;
    for (size_t i = 0; i < model.banks.size(); i++) {
        const auto ok = write_unsynced(directory, model.manifest.banks[i].file, model.bank_bytes(i));
        if (!ok) return ok;
    }
    const std::string manifest = container::manifest_text(model.manifest);
    return write_unsynced(directory, container::kManifestName, std::as_bytes(std::span(manifest)));
}

}  // namespace

Result<void> write_random_model(const std::string& config_text, const RandomModelRecipe& recipe,
                                uint32_t seed, const std::string& directory) {
    const auto config = engine::parse_config(config_text, "config.json");
    if (!config) return pass(config);
    const Format experts = expert_format(*config, recipe.experts);
    const std::vector<engine::TensorSpec> specs = engine::trunk_tensors(*config);
    // Both types a release may have come up: the embedding stays as it is.
    const auto released = [&](size_t) {
        return recipe.trunk == engine::TrunkRecipe::f32 ? container::Dtype::f32 : container::Dtype::bf16;
    };
    const auto layout = engine::plan_layout(*config, specs, recipe.trunk, experts, released);
    if (!layout) return pass(layout);

    TinyContainer model;
    model.manifest.config = config_text;
    model.manifest.trunk_recipe = engine::trunk_recipe_name(recipe.trunk);
    model.manifest.expert_recipe = kernels::format_info(experts).name;
    for (size_t i = 0; i < specs.size(); i++) {
        const container::TensorEntry& entry = layout->tensors[i];
        model.add_tensor(entry.name, entry.format, entry.layout, entry.shape,
                         random_weights(specs[i], seed + static_cast<uint32_t>(i)));
    }
    for (const container::BankEntry& bank : layout->banks) {
        model.add_bank(bank.layer, bank.shape, seed + 1000 * static_cast<uint32_t>(bank.layer));
    }
    model.seal();
    return write_unsynced(directory, model);
}

}  // namespace waste::test
