// The architecture of a model, read from the release's own config.json.
//
// Two families share one graph: `kimi_k3` (text fields nested in text_config, tensors under
// "language_model.") and `kimi_linear` (flat). Every K3 feature is switched by its own key, as in the
// released code; a kimi_k3 config must carry all of them, a kimi_linear config may carry any. Field names are
// the release's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::engine {

enum class Family { kimi_linear, kimi_k3 };
enum class HiddenAct { silu, situ };

/// q_a_layernorm and kv_a_layernorm are built without an eps in the released code, so they have its default.
inline constexpr float kLoraNormEps = 1e-6f;

struct ModelConfig {
    Family family;
    std::string tensor_prefix;  ///< "language_model." for K3, else empty

    int64_t vocab_size;
    int64_t hidden_size;
    int64_t num_hidden_layers;
    float rms_norm_eps;
    int64_t max_context;  ///< max_position_embeddings or model_max_length

    // KDA
    std::vector<bool> kda_layer;  ///< [num_hidden_layers]; false: MLA
    int64_t kda_num_heads;
    int64_t kda_head_dim;  ///< key and value width of a head
    int64_t conv_kernel_size;
    std::optional<float> gate_lower_bound;  ///< absent: the softplus gate
    bool use_full_rank_gate;

    // MLA
    int64_t num_attention_heads;
    int64_t q_lora_rank;  ///< 0: plain q_proj
    int64_t kv_lora_rank;
    int64_t qk_nope_head_dim;
    int64_t qk_rope_head_dim;
    int64_t v_head_dim;
    bool mla_use_output_gate;

    // Feed-forward
    int64_t intermediate_size;
    HiddenAct hidden_act;
    float situ_beta;
    float situ_linear_beta;
    int64_t first_k_dense_replace;
    int64_t moe_layer_freq;
    int64_t num_experts;
    int64_t num_experts_per_token;
    int64_t num_shared_experts;
    int64_t moe_intermediate_size;
    int64_t routed_expert_hidden_size;  ///< 0: experts work on the hidden size
    bool latent_moe_use_norm;
    bool moe_renormalize;
    float routed_scaling_factor;

    int64_t attn_res_block_size;  ///< 0: plain residuals

    int32_t bos_token_id;  ///< -1: none
    std::vector<int32_t> eos_token_ids;

    int64_t kda_width() const { return kda_num_heads * kda_head_dim; }
    int64_t q_head_dim() const { return qk_nope_head_dim + qk_rope_head_dim; }
    int64_t expert_input_size() const {
        return routed_expert_hidden_size > 0 ? routed_expert_hidden_size : hidden_size;
    }
    bool is_moe(int64_t layer) const { return layer >= first_k_dense_replace && layer % moe_layer_freq == 0; }
    int64_t kda_layer_count() const;
    int64_t mla_layer_count() const { return num_hidden_layers - kda_layer_count(); }
    int64_t moe_layer_count() const;
    /// Most block snapshots a token carries through the layers (0 without Attention Residuals).
    int64_t attn_res_snapshots() const {
        return attn_res_block_size > 0 ? (num_hidden_layers + attn_res_block_size - 1) / attn_res_block_size
                                       : 0;
    }
};

/// `place` names the file in errors. Refuses, by name: missing and mistyped keys, values out of bounds, and
/// everything this graph does not compute (rotary MLA, grouped routing, tied embeddings, other activations).
Result<ModelConfig> parse_config(std::string_view text, const std::string& place);

}  // namespace waste::engine
