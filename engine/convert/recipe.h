// Which format each tensor of a release gets.
//
//             matrix  fine, kv_b  router     experts (default)
//   q4        q4      q8          as is      mxfp4 where released so, else q4
//   q4pure    q4      q4          as is      "
//   q8        q8      q8          as is      "
//   bf16      bf16    bf16        bf16       "
//   f32       f32     f32         f32        "
//
// "as is": bf16 if released in bf16, else f32. Vectors are always f32, the embedding is kept as released.
// Why q4 is a mixture: measured perplexity against bf16 is +3.87 % for q4 everywhere, +1.41 % so
// (docs/performance.md).
#pragma once

#include <optional>
#include <string_view>

#include "container/safetensors.h"
#include "engine/tensor_list.h"
#include "kernels/panel.h"

namespace waste::engine {

enum class TrunkRecipe { q4, q4pure, q8, bf16, f32 };

std::optional<TrunkRecipe> trunk_recipe_from_name(std::string_view name);
std::string_view trunk_recipe_name(TrunkRecipe recipe);

kernels::Format trunk_format(TrunkRecipe recipe, Role role, container::Dtype released);

}  // namespace waste::engine
