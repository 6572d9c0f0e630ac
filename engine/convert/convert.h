// A release becomes a container.
//
// Everything that can be known to fail is checked first: tensors, shapes, dtypes, tokenizer, disk space. Then
// the trunk is written layer by layer and the experts bank by bank, each journalled once it is on the drive,
// so that a run that was stopped or killed goes on where it was and leaves the same bytes as an undisturbed
// one. No file has its final name before it is whole; manifest.json comes last, so a directory with one is a
// finished container.
//
// Memory: a slab of the trunk (16 MiB) or one expert record per thread, whatever the model's size.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "container/manifest.h"
#include "engine/convert/progress.h"
#include "engine/convert/recipe.h"
#include "engine/convert/source.h"
#include "engine/parallel.h"

namespace waste::engine {

struct ConvertOptions {
    std::string source;
    std::string destination;
    TrunkRecipe trunk = TrunkRecipe::q4;
    std::optional<kernels::Format> experts;  ///< default: mxfp4 where released so, else q4
    int threads = available_cpus();
};

/// What a conversion is about to do.
struct ConvertSummary {
    Family family;
    int64_t layers, moe_layers, experts_per_layer;
    size_t source_tensors;
    uint64_t source_bytes;
    uint64_t trunk_bytes, expert_bytes;
    kernels::Format expert_format;
    uint64_t free_bytes;  ///< on the destination's file system
    bool has_tokenizer;
    std::vector<std::string> ignored;
    std::vector<std::string> notes;  ///< oddities of the release worth a line
    bool resumed;
    bool finished;  ///< the destination already is this container; nothing to do
};

struct ConvertCallbacks {
    /// Comes again, with `finished`, where another run ended just before this one could write.
    std::function<void(const ConvertSummary&)> on_start;
    ProgressReport on_progress;  ///< false: stop, to be continued
};

/// Returns the container's fingerprint.
Result<std::string> convert(const ConvertOptions& options, const ConvertCallbacks& callbacks);

/// The formats `options` asks for, given what the release holds.
Result<kernels::Format> choose_expert_format(const ConvertOptions& options, const Source& source);

}  // namespace waste::engine
