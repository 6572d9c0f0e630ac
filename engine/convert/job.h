// One conversion as it is decided before the first byte is written.
#pragma once

#include <string>
#include <vector>

#include "engine/convert/carried.h"
#include "engine/convert/convert.h"
#include "engine/convert/layout.h"
#include "engine/convert/source.h"

namespace waste::engine {

struct ConvertJob {
    Source source;
    std::string trunk_recipe, expert_recipe;  ///< names, as in the manifest
    kernels::Format expert_format;
    ContainerLayout layout;
    std::vector<CarriedContent> carried;
    std::vector<std::string> notes;  ///< what was tolerated in the tokenizer's files

    /// What an unfinished conversion must have in common with this one to be gone on with: 32 hex digits.
    std::string identity() const;
};

/// Reads and checks everything of the release but its weights.
Result<ConvertJob> prepare_job(const ConvertOptions& options);

}  // namespace waste::engine
