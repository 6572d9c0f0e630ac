#include "tests/support/planned_models.h"

#include <fmt/format.h>

#include <fstream>
#include <stdexcept>

#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

constexpr const char* kK3Keys = R"({
  "model_type": "kimi_k3", "bos_token_id": 163584, "eos_token_id": 163586, "tie_word_embeddings": false,
  "text_config": {
    "vocab_size": 163840, "hidden_size": 7168, "num_hidden_layers": 93, "rms_norm_eps": 1e-5,
    "max_position_embeddings": 1048576, "intermediate_size": 33792,
    "num_attention_heads": 96, "q_lora_rank": 1536, "kv_lora_rank": 512, "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64, "v_head_dim": 128, "mla_use_nope": true, "mla_use_output_gate": true,
    "hidden_act": "situ", "activation_situ_beta": 4.0, "activation_situ_linear_beta": 25.0,
    "num_experts": 896, "num_experts_per_token": 16, "num_shared_experts": 2, "moe_intermediate_size": 3072,
    "first_k_dense_replace": 1, "routed_expert_hidden_size": 3584, "latent_moe_use_norm": true,
    "moe_router_activation_func": "sigmoid", "moe_renormalize": true, "routed_scaling_factor": 1.0,
    "moe_layer_freq": 1, "num_expert_group": 1, "topk_group": 1, "num_key_value_heads": 96,
    "tie_word_embeddings": false, "attn_res_block_size": 12, "quantization_config": {"format": "mxfp4-pack-quantized"},
    "linear_attn_config": {"num_heads": 96, "head_dim": 128, "short_conv_kernel_size": 4,
      "gate_lower_bound": -5.0, "use_full_rank_gate": true, "kda_layers": [KDA], "full_attn_layers": [FULL]}
  }
})";

constexpr const char* kLinearKeys = R"({
  "model_type": "kimi_linear",
  "vocab_size": 163840, "hidden_size": 2304, "num_hidden_layers": 27, "rms_norm_eps": 1e-5,
  "model_max_length": 1048576, "intermediate_size": 9216,
  "num_attention_heads": 32, "kv_lora_rank": 512, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
  "v_head_dim": 128, "mla_use_nope": true, "hidden_act": "silu",
  "num_experts": 256, "num_experts_per_token": 8, "num_shared_experts": 1, "moe_intermediate_size": 1024,
  "first_k_dense_replace": 1, "moe_router_activation_func": "sigmoid", "moe_renormalize": true,
  "routed_scaling_factor": 2.446,
  "linear_attn_config": {"num_heads": 32, "head_dim": 128, "short_conv_kernel_size": 4,
    "kda_layers": [KDA], "full_attn_layers": [FULL]}
})";

/// Every fourth layer and the last one are MLA, as in both releases.
std::string with_layers(std::string text, int layers) {
    std::string kda, full;
    for (int layer = 1; layer <= layers; layer++) {
        std::string& list = layer % 4 == 0 || layer == layers ? full : kda;
        list += fmt::format("{}{}", list.empty() ? "" : ",", layer);
    }
    text.replace(text.find("KDA"), 3, kda);
    return text.replace(text.find("FULL"), 4, full);
}

}  // namespace

std::string k3_config() {
    return with_layers(kK3Keys, 93);
}

std::string linear_config() {
    return with_layers(kLinearKeys, 27);
}

Result<engine::PlannedModel> look_up(const std::string& config_text, std::optional<engine::TrunkRecipe> trunk,
                                     std::optional<kernels::Format> experts) {
    const TempDir dir;
    std::ofstream(dir.file("config.json")) << config_text;
    return engine::look_up_model(dir.file("config.json"), trunk, experts);
}

engine::PlannedModel planned(const std::string& config_text, std::optional<engine::TrunkRecipe> trunk) {
    const auto model = look_up(config_text, trunk, {});
    if (!model) throw std::runtime_error(model.error().text());
    return *model;
}

}  // namespace waste::test
