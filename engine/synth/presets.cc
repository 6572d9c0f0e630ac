#include "engine/synth/presets.h"

namespace waste::engine {
namespace {

// Without an end-of-text token, so that a measurement never stops by chance.
constexpr std::string_view kK3 = R"({
  "architectures": ["KimiK3ForConditionalGeneration"],
  "model_type": "kimi_k3",
  "bos_token_id": 1,
  "eos_token_id": [],
  "dtype": "bfloat16",
  "tie_word_embeddings": false,
  "text_config": {
    "model_type": "kimi_linear",
    "dtype": "bfloat16",
    "vocab_size": 163840,
    "hidden_size": 7168,
    "num_hidden_layers": 93,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": false,
    "linear_attn_config": {
      "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23, 25, 26, 27,
                     29, 30, 31, 33, 34, 35, 37, 38, 39, 41, 42, 43, 45, 46, 47, 49, 50, 51, 53, 54,
                     55, 57, 58, 59, 61, 62, 63, 65, 66, 67, 69, 70, 71, 73, 74, 75, 77, 78, 79, 81,
                     82, 83, 85, 86, 87, 89, 90, 91],
      "full_attn_layers": [4, 8, 12, 16, 20, 24, 28, 32, 36, 40, 44, 48, 52, 56, 60, 64, 68, 72, 76,
                           80, 84, 88, 92, 93],
      "num_heads": 96,
      "head_dim": 128,
      "short_conv_kernel_size": 4,
      "gate_lower_bound": -5.0,
      "use_full_rank_gate": true
    },
    "num_attention_heads": 96,
    "num_key_value_heads": 96,
    "q_lora_rank": 1536,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": true,
    "mla_use_output_gate": true,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "intermediate_size": 33792,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_experts": 896,
    "num_experts_per_token": 16,
    "num_shared_experts": 2,
    "moe_intermediate_size": 3072,
    "routed_expert_hidden_size": 3584,
    "latent_moe_use_norm": true,
    "moe_router_activation_func": "sigmoid",
    "moe_renormalize": true,
    "routed_scaling_factor": 1.0,
    "num_expert_group": 1,
    "topk_group": 1,
    "attn_res_block_size": 12,
    "quantization_config": {"format": "mxfp4-pack-quantized"}
  }
}
)";

constexpr std::string_view kK3Mini = R"({
  "architectures": ["KimiK3ForConditionalGeneration"],
  "model_type": "kimi_k3",
  "bos_token_id": 1,
  "eos_token_id": [],
  "dtype": "bfloat16",
  "tie_word_embeddings": false,
  "text_config": {
    "model_type": "kimi_linear",
    "dtype": "bfloat16",
    "vocab_size": 32768,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": false,
    "linear_attn_config": {
      "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23],
      "full_attn_layers": [4, 8, 12, 16, 20, 24],
      "num_heads": 16,
      "head_dim": 128,
      "short_conv_kernel_size": 4,
      "gate_lower_bound": -5.0,
      "use_full_rank_gate": true
    },
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "q_lora_rank": 512,
    "kv_lora_rank": 512,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": true,
    "mla_use_output_gate": true,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "intermediate_size": 4096,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_experts": 256,
    "num_experts_per_token": 8,
    "num_shared_experts": 2,
    "moe_intermediate_size": 1024,
    "routed_expert_hidden_size": 1024,
    "latent_moe_use_norm": true,
    "moe_router_activation_func": "sigmoid",
    "moe_renormalize": true,
    "routed_scaling_factor": 1.0,
    "num_expert_group": 1,
    "topk_group": 1,
    "attn_res_block_size": 8,
    "quantization_config": {"format": "mxfp4-pack-quantized"}
  }
}
)";

constexpr std::string_view kKlMini = R"({
  "architectures": ["KimiLinearForCausalLM"],
  "model_type": "kimi_linear",
  "bos_token_id": 1,
  "dtype": "bfloat16",
  "vocab_size": 32768,
  "hidden_size": 2048,
  "num_hidden_layers": 24,
  "model_max_length": 1048576,
  "rms_norm_eps": 1e-05,
  "tie_word_embeddings": false,
  "linear_attn_config": {
    "kda_layers": [1, 2, 3, 5, 6, 7, 9, 10, 11, 13, 14, 15, 17, 18, 19, 21, 22, 23],
    "full_attn_layers": [4, 8, 12, 16, 20, 24],
    "num_heads": 16,
    "head_dim": 128,
    "short_conv_kernel_size": 4
  },
  "num_attention_heads": 16,
  "num_key_value_heads": 16,
  "kv_lora_rank": 512,
  "qk_nope_head_dim": 128,
  "qk_rope_head_dim": 64,
  "v_head_dim": 128,
  "mla_use_nope": true,
  "hidden_act": "silu",
  "intermediate_size": 4096,
  "first_k_dense_replace": 1,
  "moe_layer_freq": 1,
  "num_experts": 256,
  "num_experts_per_token": 8,
  "num_shared_experts": 2,
  "moe_intermediate_size": 512,
  "moe_router_activation_func": "sigmoid",
  "moe_renormalize": true,
  "routed_scaling_factor": 2.446,
  "num_expert_group": 1,
  "topk_group": 1
}
)";

constexpr std::string_view kDemo = R"({
  "architectures": ["KimiK3ForConditionalGeneration"],
  "model_type": "kimi_k3",
  "bos_token_id": 5888,
  "eos_token_id": 5890,
  "dtype": "bfloat16",
  "tie_word_embeddings": false,
  "text_config": {
    "model_type": "kimi_linear",
    "dtype": "bfloat16",
    "vocab_size": 6144,
    "hidden_size": 256,
    "num_hidden_layers": 9,
    "max_position_embeddings": 1048576,
    "rms_norm_eps": 1e-05,
    "tie_word_embeddings": false,
    "linear_attn_config": {
      "kda_layers": [1, 2, 3, 5, 6, 7],
      "full_attn_layers": [4, 8, 9],
      "num_heads": 3,
      "head_dim": 128,
      "short_conv_kernel_size": 4,
      "gate_lower_bound": -5.0,
      "use_full_rank_gate": true
    },
    "num_attention_heads": 3,
    "num_key_value_heads": 3,
    "q_lora_rank": 128,
    "kv_lora_rank": 128,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "mla_use_nope": true,
    "mla_use_output_gate": true,
    "hidden_act": "situ",
    "activation_situ_beta": 4.0,
    "activation_situ_linear_beta": 25.0,
    "intermediate_size": 768,
    "first_k_dense_replace": 1,
    "moe_layer_freq": 1,
    "num_experts": 64,
    "num_experts_per_token": 8,
    "num_shared_experts": 2,
    "moe_intermediate_size": 128,
    "routed_expert_hidden_size": 128,
    "latent_moe_use_norm": true,
    "moe_router_activation_func": "sigmoid",
    "moe_renormalize": true,
    "routed_scaling_factor": 1.0,
    "num_expert_group": 1,
    "topk_group": 1,
    "attn_res_block_size": 3,
    "quantization_config": {"format": "mxfp4-pack-quantized"}
  }
}
)";

constexpr SynthPreset kPresets[] = {{"k3", kK3}, {"k3mini", kK3Mini}, {"klmini", kKlMini}, {"demo", kDemo}};

}  // namespace

std::span<const SynthPreset> synth_presets() {
    return kPresets;
}

std::optional<std::string_view> synth_preset_config(std::string_view name) {
    for (const SynthPreset& preset : kPresets) {
        if (preset.name == name) return preset.config;
    }
    return std::nullopt;
}

}  // namespace waste::engine
