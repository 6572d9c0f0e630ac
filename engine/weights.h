// The weights of a model, bound to where they lie in the mapped container. Immutable, shared by all sessions.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "container/reader.h"
#include "engine/config.h"
#include "engine/trunk.h"
#include "kernels/panel.h"

namespace waste::engine {

/// One weight matrix [rows out][cols in] in panels.
struct Matrix {
    kernels::Panels panels;
    kernels::Format format;
};

struct KdaWeights {
    Matrix q_proj, k_proj, v_proj;
    std::span<const float> q_conv, k_conv, v_conv;  ///< [width][taps]
    Matrix f_a_proj, f_b_proj, b_proj;
    std::span<const float> a_log;              ///< [heads]
    std::span<const float> dt_bias;            ///< [width]
    std::optional<Matrix> g_proj;              ///< the full-rank output gate, or
    std::optional<Matrix> g_a_proj, g_b_proj;  ///< the low-rank one
    std::span<const float> o_norm;             ///< [head_dim]
    Matrix o_proj;
};

struct MlaWeights {
    std::optional<Matrix> q_a_proj;
    std::span<const float> q_a_norm;
    Matrix q_proj;  ///< q_b_proj where there is a q_a_proj
    Matrix kv_a_proj;
    std::span<const float> kv_a_norm;
    std::vector<Matrix> k_absorb;  ///< per head [kv_lora_rank][qk_nope_head_dim]
    std::vector<Matrix> v_up;      ///< per head [v_head_dim][kv_lora_rank]
    std::optional<Matrix> g_proj;
    Matrix o_proj;
};

struct MlpWeights {
    Matrix gate_proj, up_proj, down_proj;
};

struct MoeWeights {
    Matrix router;
    std::span<const float> bias;  ///< [experts]
    std::optional<Matrix> latent_down, latent_up;
    std::span<const float> latent_norm;
    std::optional<MlpWeights> shared;
    size_t bank;  ///< index into the manifest's banks
};

struct LayerWeights {
    std::vector<float> attn_mix, mlp_mix;  ///< attention residuals: norm x proj, empty where unused
    std::span<const float> input_norm, post_attention_norm;
    std::optional<KdaWeights> kda;  ///< or
    std::optional<MlaWeights> mla;
    std::optional<MlpWeights> mlp;  ///< or
    std::optional<MoeWeights> moe;
};

struct ModelWeights {
    container::TensorView embedding;
    std::vector<LayerWeights> layers;
    std::vector<float> output_mix;
    std::span<const float> norm;
    Matrix lm_head;
};

/// Checks that the container holds every tensor and bank that the config asks for, in the right shape.
/// They are bound to where the trunk holds them.
Result<ModelWeights> bind_weights(const container::Container& container, const ModelConfig& config,
                                  const Trunk& trunk);

}  // namespace waste::engine
