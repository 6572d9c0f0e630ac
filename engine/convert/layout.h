// Where everything of a container will lie: a pure function of config, dtypes and recipe, known before the
// first byte is written. The plan of a model that is not converted yet comes from here too.
#pragma once

#include <functional>
#include <vector>

#include "container/manifest.h"
#include "engine/convert/recipe.h"
#include "engine/tensor_list.h"

namespace waste::engine {

struct ContainerLayout {
    std::vector<container::TensorEntry> tensors;  ///< one per spec, in order; hashes still 0
    uint64_t trunk_bytes;
    std::vector<container::BankEntry> banks;  ///< table hashes still 0

    uint64_t expert_bytes() const;
    uint64_t total_bytes() const { return trunk_bytes + expert_bytes(); }
};

/// `released(i)` is the dtype of specs[i] in the release.
Result<ContainerLayout> plan_layout(const ModelConfig& config, const std::vector<TensorSpec>& specs,
                                    TrunkRecipe recipe, kernels::Format expert_format,
                                    const std::function<container::Dtype(size_t)>& released);

/// True if a container's tensors and banks lie as `layout` says, whatever their hashes.
bool same_layout(const ContainerLayout& layout, const container::Manifest& manifest);

std::string bank_file_name(int64_t layer);  ///< "experts-007.bin"

}  // namespace waste::engine
