// A container of random weights for any shape of model, so that speed and memory can be measured without a release.
//
// Its bytes are a function of shape, formats, seed, skew and number of stored experts, whatever the number of threads.
// What the weights are: synth_weights.h; how they are made: synth_random.h. There is no tokenizer; such a container runs
// on token ids.
//
// Everything that can be known to fail is checked first. Then all is written into a directory DESTINATION.partial, which
// gets its name when it is whole; on an error or a stop it is removed. One that a killed run has left is written anew.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "container/manifest.h"
#include "engine/config.h"
#include "engine/convert/progress.h"
#include "engine/convert/recipe.h"
#include "engine/parallel.h"

namespace waste::engine {

inline constexpr double kMaxSynthSkew = 10.0;

struct SynthOptions {
    std::string config_text;   ///< a config.json: synth_presets.h has some
    std::string config_place;  ///< names it in errors
    std::string destination;
    TrunkRecipe trunk = TrunkRecipe::q4;
    kernels::Format experts = kernels::Format::mxfp4;
    uint64_t seed = 1;
    double skew = 0.0;  ///< of the experts' popularity: expert_bias() in synth_weights.h
    /// Records stored a layer; expert e has record e modulo this. Absent: each expert has its own.
    std::optional<int64_t> unique_experts;
    bool replace = false;  ///< the destination may be another synthetic container, which goes at the very end
    int threads = available_cpus();
};

/// What is about to be written.
struct SynthSummary {
    ModelConfig config;
    uint64_t trunk_bytes, expert_bytes;
    int64_t stored_experts;  ///< records a layer
    uint64_t free_bytes;     ///< on the destination's file system
};

struct SynthCallbacks {
    std::function<void(const SynthSummary&)> on_start;
    ProgressReport on_progress;  ///< false: stop
};

/// Returns the container's fingerprint.
Result<std::string> synthesize(const SynthOptions& options, const SynthCallbacks& callbacks);

}  // namespace waste::engine
