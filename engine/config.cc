#include "engine/config.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "kernels/attn_res.h"

namespace waste::engine {
namespace {

using nlohmann::json;

// No real model comes near these; they keep every size computed from them in 64 bits.
constexpr int64_t kMaxDimension = int64_t{1} << 24;
constexpr int64_t kMaxLayers = 4096;
constexpr int64_t kMaxExperts = 1 << 20;
constexpr int64_t kMaxHeads = 1 << 16;
constexpr int64_t kMaxHeadDim = 1 << 12;
constexpr int64_t kMaxRank = 1 << 16;
constexpr int64_t kMaxContext = int64_t{1} << 26;

/// Reads keys of one JSON object and remembers the first thing that was wrong.
class Fields {
  public:
    Fields(const json& object, std::string place, std::string prefix)
        : object_(object), place_(std::move(place)), prefix_(std::move(prefix)) {}

    const std::optional<Error>& error() const { return error_; }

    void refuse(ErrorKind kind, std::string_view key, std::string message) {
        if (!error_) error_ = Error{kind, fmt::format("{}: {}{}", place_, prefix_, key), std::move(message)};
    }

    /// The value, or null if the key is absent or JSON null.
    const json* find(std::string_view key) const {
        const auto it = object_.find(key);
        return it == object_.end() || it->is_null() ? nullptr : &*it;
    }

    const json* require(std::string_view key) {
        const json* value = find(key);
        if (!value) refuse(ErrorKind::not_found, key, "is missing; this model family needs it");
        return value;
    }

    int64_t integer(std::string_view key, int64_t least, int64_t most) {
        const json* value = require(key);
        return value ? integer_of(*value, key, least, most) : least;
    }

    int64_t integer_or(std::string_view key, int64_t fallback, int64_t least, int64_t most) {
        const json* value = find(key);
        return value ? integer_of(*value, key, least, most) : fallback;
    }

    float number(std::string_view key, double least, double most) {
        const json* value = require(key);
        return value ? number_of(*value, key, least, most) : 0.0f;
    }

    /// Required where the family's config always has it.
    int64_t integer_if(bool required, std::string_view key, int64_t fallback, int64_t least, int64_t most) {
        return required ? integer(key, least, most) : integer_or(key, fallback, least, most);
    }

    bool boolean(std::string_view key) {
        const json* value = require(key);
        return value && boolean_of(*value, key);
    }

    /// False where it is absent and need not be there.
    bool boolean_if(bool required, std::string_view key) {
        const json* value = required ? require(key) : find(key);
        return value && boolean_of(*value, key);
    }

    std::string string(std::string_view key) {
        const json* value = require(key);
        if (value && !value->is_string()) refuse(ErrorKind::corrupt, key, "must be a string");
        return value && value->is_string() ? value->get<std::string>() : std::string();
    }

    std::vector<int64_t> integers(std::string_view key, int64_t least, int64_t most) {
        std::vector<int64_t> out;
        const json* value = require(key);
        if (!value) return out;
        if (!value->is_array()) {
            refuse(ErrorKind::corrupt, key, "must be a list of integers");
            return out;
        }
        for (const json& item : *value) out.push_back(integer_of(item, key, least, most));
        return out;
    }

  private:
    int64_t integer_of(const json& value, std::string_view key, int64_t least, int64_t most) {
        if (!value.is_number_integer()) {
            refuse(ErrorKind::corrupt, key, "must be an integer");
            return least;
        }
        const bool too_large = value.is_number_unsigned() && value.get<uint64_t>() > uint64_t{INT64_MAX};
        const int64_t number = too_large ? INT64_MAX : value.get<int64_t>();
        if (number < least || number > most) {
            refuse(ErrorKind::corrupt, key,
                   fmt::format("must lie in {}..{}, it is {}", least, most, value.dump()));
            return least;
        }
        return number;
    }

    float number_of(const json& value, std::string_view key, double least, double most) {
        if (!value.is_number()) {
            refuse(ErrorKind::corrupt, key, "must be a number");
            return 0.0f;
        }
        const double number = value.get<double>();
        if (!(number >= least && number <= most)) {
            refuse(ErrorKind::corrupt, key,
                   fmt::format("must lie in {}..{}, it is {}", least, most, value.dump()));
            return 0.0f;
        }
        return static_cast<float>(number);
    }

    bool boolean_of(const json& value, std::string_view key) {
        if (!value.is_boolean()) {
            refuse(ErrorKind::corrupt, key, "must be true or false");
            return false;
        }
        return value.get<bool>();
    }

    const json& object_;
    std::string place_;
    std::string prefix_;
    std::optional<Error> error_;
};

void read_layer_kinds(Fields& lin, int64_t layers, ModelConfig& config) {
    const std::vector<int64_t> kda = lin.integers("kda_layers", 1, layers);  // 1-based, as released
    const std::vector<int64_t> full = lin.integers("full_attn_layers", 1, layers);
    if (lin.error()) return;
    std::vector<int> seen(static_cast<size_t>(layers), 0);
    config.kda_layer.assign(static_cast<size_t>(layers), false);
    for (const int64_t layer : kda) {
        config.kda_layer[static_cast<size_t>(layer - 1)] = true;
        seen[static_cast<size_t>(layer - 1)]++;
    }
    for (const int64_t layer : full) seen[static_cast<size_t>(layer - 1)]++;
    for (int64_t i = 0; i < layers; i++) {
        if (seen[static_cast<size_t>(i)] == 1) continue;
        lin.refuse(ErrorKind::corrupt, "kda_layers",
                   fmt::format("layer {} (counted from 1) must stand in exactly one of kda_layers and "
                               "full_attn_layers",
                               i + 1));
        return;
    }
}

void read_kda(Fields& lin, bool k3, ModelConfig& config) {
    config.kda_num_heads = lin.integer("num_heads", 1, kMaxHeads);
    config.kda_head_dim = lin.integer("head_dim", 1, kMaxHeadDim);
    config.conv_kernel_size = lin.integer("short_conv_kernel_size", 2, 64);
    if (k3 || lin.find("gate_lower_bound"))
        config.gate_lower_bound = lin.number("gate_lower_bound", -80.0, 0.0);
    config.use_full_rank_gate = lin.boolean_if(k3, "use_full_rank_gate");
}

void read_mla(Fields& text, bool k3, ModelConfig& config) {
    config.num_attention_heads = text.integer("num_attention_heads", 1, kMaxHeads);
    const int64_t kv_heads =
        text.integer_if(k3, "num_key_value_heads", config.num_attention_heads, 1, kMaxHeads);
    if (kv_heads != config.num_attention_heads) {
        text.refuse(ErrorKind::unsupported, "num_key_value_heads",
                    "differs from num_attention_heads; shared keys are not supported in latent attention");
    }
    config.q_lora_rank = text.integer_if(k3, "q_lora_rank", 0, 1, kMaxRank);
    config.kv_lora_rank = text.integer("kv_lora_rank", 1, kMaxRank);
    config.qk_nope_head_dim = text.integer("qk_nope_head_dim", 1, kMaxHeadDim);
    config.qk_rope_head_dim = text.integer("qk_rope_head_dim", 0, kMaxHeadDim);
    config.v_head_dim = text.integer("v_head_dim", 1, kMaxHeadDim);
    config.mla_use_output_gate = text.boolean_if(k3, "mla_use_output_gate");
    if (!text.boolean("mla_use_nope")) {
        text.refuse(ErrorKind::unsupported, "mla_use_nope",
                    "is false; rotary latent attention is not supported");
    }
}

void read_activation(Fields& text, ModelConfig& config) {
    const std::string act = text.string("hidden_act");
    if (act == "situ") {
        config.hidden_act = HiddenAct::situ;
        // Never defaulted: a wrong bound yields a plausible, wrong model.
        config.situ_beta = text.number("activation_situ_beta", 1e-6, 1e6);
        config.situ_linear_beta = text.number("activation_situ_linear_beta", 1e-6, 1e6);
    } else if (act == "silu") {
        config.hidden_act = HiddenAct::silu;
    } else if (!text.error()) {
        text.refuse(ErrorKind::unsupported, "hidden_act",
                    fmt::format("'{}' is not supported (silu, situ)", act));
    }
}

void read_router(Fields& text, bool k3, ModelConfig& config) {
    const std::string activation = text.string("moe_router_activation_func");
    if (!text.error() && activation != "sigmoid") {
        text.refuse(ErrorKind::unsupported, "moe_router_activation_func",
                    fmt::format("'{}' is not supported (sigmoid)", activation));
    }
    for (const char* key : {"num_expert_group", "topk_group"}) {
        if (text.integer_if(k3, key, 1, 0, kMaxExperts) > 1) {
            text.refuse(ErrorKind::unsupported, key, "is not 1; group-limited routing is not supported");
        }
    }
    config.moe_renormalize = text.boolean("moe_renormalize");
    config.routed_scaling_factor = text.number("routed_scaling_factor", 1e-6, 1e6);
}

void read_moe(Fields& text, bool k3, ModelConfig& config) {
    config.num_experts = text.integer("num_experts", 1, kMaxExperts);
    config.num_experts_per_token = text.integer("num_experts_per_token", 1, config.num_experts);
    config.num_shared_experts = text.integer("num_shared_experts", 0, 1024);
    config.moe_intermediate_size = text.integer("moe_intermediate_size", 1, kMaxDimension);
    config.first_k_dense_replace = text.integer("first_k_dense_replace", 0, kMaxLayers);
    config.moe_layer_freq = text.integer_if(k3, "moe_layer_freq", 1, 1, kMaxLayers);
    config.routed_expert_hidden_size = text.integer_if(k3, "routed_expert_hidden_size", 0, 1, kMaxDimension);
    config.latent_moe_use_norm = text.boolean_if(k3, "latent_moe_use_norm");
    if (config.latent_moe_use_norm && config.routed_expert_hidden_size == 0) {
        text.refuse(ErrorKind::corrupt, "latent_moe_use_norm", "is set without routed_expert_hidden_size");
    }
    read_router(text, k3, config);
}

void read_attn_res(Fields& text, bool k3, ModelConfig& config) {
    config.attn_res_block_size = text.integer_if(k3, "attn_res_block_size", 0, 1, kMaxLayers);
    if (config.attn_res_snapshots() + 1 > kernels::kMaxAttnResCandidates) {
        text.refuse(ErrorKind::unsupported, "attn_res_block_size",
                    fmt::format("gives {} residual blocks; at most {} are supported",
                                config.attn_res_snapshots(), kernels::kMaxAttnResCandidates - 1));
    }
}

void read_tokens(Fields& top, bool k3, ModelConfig& config) {
    const int64_t last_id = config.vocab_size - 1;
    config.bos_token_id = static_cast<int32_t>(top.integer_if(k3, "bos_token_id", -1, 0, last_id));
    const json* eos = k3 ? top.require("eos_token_id") : top.find("eos_token_id");
    if (eos) {
        if (eos->is_array()) {
            for (const int64_t id : top.integers("eos_token_id", 0, last_id)) {
                config.eos_token_ids.push_back(static_cast<int32_t>(id));
            }
        } else {
            config.eos_token_ids.push_back(static_cast<int32_t>(top.integer("eos_token_id", 0, last_id)));
        }
    }
}

}  // namespace

int64_t ModelConfig::kda_layer_count() const {
    return std::count(kda_layer.begin(), kda_layer.end(), true);
}

int64_t ModelConfig::moe_layer_count() const {
    int64_t count = 0;
    for (int64_t layer = 0; layer < num_hidden_layers; layer++) count += is_moe(layer) ? 1 : 0;
    return count;
}

Result<ModelConfig> parse_config(std::string_view text, const std::string& place) {
    const json root = json::parse(text, nullptr, false);
    if (root.is_discarded()) return fail(ErrorKind::corrupt, place, "is not valid JSON (UTF-8)");
    if (!root.is_object()) return fail(ErrorKind::corrupt, place, "must be a JSON object");

    Fields top(root, place, "");
    const std::string model_type = top.string("model_type");
    if (top.error()) return tl::unexpected(*top.error());
    const bool k3 = model_type == "kimi_k3";
    if (!k3 && model_type != "kimi_linear") {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("model_type '{}' is not supported; this engine runs kimi_k3 and kimi_linear",
                                model_type));
    }
    const json* object = &root;
    if (k3) {
        object = top.require("text_config");
        if (!object) return tl::unexpected(*top.error());
        if (!object->is_object())
            return fail(ErrorKind::corrupt, place + ": text_config", "must be an object");
    }
    Fields fields(*object, place, k3 ? "text_config." : "");
    ModelConfig config{};
    config.family = k3 ? Family::kimi_k3 : Family::kimi_linear;
    config.tensor_prefix = k3 ? "language_model." : "";
    config.vocab_size = fields.integer("vocab_size", 1, kMaxDimension);
    config.hidden_size = fields.integer("hidden_size", 1, kMaxDimension);
    config.num_hidden_layers = fields.integer("num_hidden_layers", 1, kMaxLayers);
    config.rms_norm_eps = fields.number("rms_norm_eps", 1e-12, 1.0);
    config.max_context = fields.integer(k3 ? "max_position_embeddings" : "model_max_length", 1, kMaxContext);
    config.intermediate_size = fields.integer("intermediate_size", 1, kMaxDimension);
    if (fields.boolean_if(k3, "tie_word_embeddings") || top.boolean_if(k3, "tie_word_embeddings")) {
        fields.refuse(ErrorKind::unsupported, "tie_word_embeddings",
                      "is true; tied embeddings are not supported");
    }

    const json* lin_object = fields.require("linear_attn_config");
    if (lin_object && !lin_object->is_object()) {
        fields.refuse(ErrorKind::corrupt, "linear_attn_config", "must be an object");
    }
    if (fields.error()) return tl::unexpected(*fields.error());
    Fields lin(*lin_object, place, k3 ? "text_config.linear_attn_config." : "linear_attn_config.");
    read_layer_kinds(lin, config.num_hidden_layers, config);
    read_kda(lin, k3, config);
    if (lin.error()) return tl::unexpected(*lin.error());

    read_mla(fields, k3, config);
    read_activation(fields, config);
    read_moe(fields, k3, config);
    read_attn_res(fields, k3, config);
    if (fields.error()) return tl::unexpected(*fields.error());
    read_tokens(top, k3, config);
    if (top.error()) return tl::unexpected(*top.error());
    return config;
}

}  // namespace waste::engine
