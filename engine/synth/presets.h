// Shapes of models, for measurements without a release. All but the first exist nowhere.
//
//   k3       Kimi K3 itself: 2.78 T parameters; 1.48 TB with mxfp4 experts, 41 GB if two a layer are stored
//   k3mini   Kimi K3's features at a tenth of its width: latent experts, full-rank gate, gated latent attention with
//            low-rank queries, attention residuals; about 10 GB with mxfp4 experts
//   klmini   Kimi-Linear's features at the same width: experts on the hidden size, low-rank gate, plain residuals
//   demo     a few MB, K3's features
#pragma once

#include <optional>
#include <span>
#include <string_view>

namespace waste::engine {

struct SynthPreset {
    std::string_view name;
    std::string_view config;  ///< a whole config.json
};

std::span<const SynthPreset> synth_presets();

/// The config.json of a preset, or nothing.
std::optional<std::string_view> synth_preset_config(std::string_view name);

}  // namespace waste::engine
