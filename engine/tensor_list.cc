#include "engine/tensor_list.h"

#include <fmt/format.h>

#include <charconv>

namespace waste::engine {
namespace {

using Shape = std::vector<int64_t>;

/// Collects the specs of one layer (or of what stands around the layers).
class List {
  public:
    List(const ModelConfig& config, std::vector<TensorSpec>& out) : config_(config), out_(out) {}

    void enter(int64_t layer) {
        layer_ = layer;
        const bool inside = layer >= 0 && layer < config_.num_hidden_layers;
        name_prefix_ = inside ? fmt::format("layers.{}.", layer) : "";
        source_prefix_ = config_.tensor_prefix + "model." + name_prefix_;
    }

    void matrix(const std::string& name, int64_t rows, int64_t cols, Role role = Role::matrix) {
        add(name, name + ".weight", role, {rows, cols}, {{rows, cols}});
    }

    void norm(const std::string& name, int64_t n) { vector(name, name + ".weight", {n}, {{n}}); }

    void vector(const std::string& name, const std::string& source, Shape shape,
                std::vector<Shape> accepted) {
        add(name, source, Role::vector, std::move(shape), std::move(accepted));
    }

    void add(const std::string& name, const std::string& source, Role role, Shape shape,
             std::vector<Shape> accepted) {
        out_.push_back({name_prefix_ + name, source_prefix_ + source, role, std::move(shape),
                        std::move(accepted), layer_});
    }

    /// lm_head stands beside "model.", not inside it.
    void head() {
        const Shape shape{config_.vocab_size, config_.hidden_size};
        out_.push_back(
            {"lm_head", config_.tensor_prefix + "lm_head.weight", Role::fine_matrix, shape, {shape}, layer_});
    }

  private:
    const ModelConfig& config_;
    std::vector<TensorSpec>& out_;
    int64_t layer_ = -1;
    std::string name_prefix_;
    std::string source_prefix_;
};

void add_attn_res(List& list, const std::string& name, int64_t hidden) {
    list.norm(name + "_norm", hidden);
    list.vector(name + "_proj", name + "_proj.weight", {hidden}, {{1, hidden}, {hidden}});
}

void add_kda(List& list, const ModelConfig& c) {
    const int64_t width = c.kda_width(), dim = c.kda_head_dim, heads = c.kda_num_heads;
    const std::string a = "self_attn.";
    for (const char* which : {"q", "k", "v"}) list.matrix(a + which + "_proj", width, c.hidden_size);
    for (const char* which : {"q", "k", "v"}) {
        const std::string conv = a + which + "_conv1d";
        list.vector(conv, conv + ".weight", {width, c.conv_kernel_size},
                    {{width, 1, c.conv_kernel_size}, {width, c.conv_kernel_size}});
    }
    list.matrix(a + "f_a_proj", dim, c.hidden_size, Role::fine_matrix);
    list.matrix(a + "f_b_proj", width, dim, Role::fine_matrix);
    list.matrix(a + "b_proj", heads, c.hidden_size, Role::fine_matrix);
    // K3 pads A_log with zeros to head_dim entries; the first `heads` are read, per head.
    std::vector<Shape> a_log{{heads}, {1, 1, heads, 1}};
    if (dim > heads) a_log.push_back({dim});
    list.vector(a + "A_log", a + "A_log", {heads}, std::move(a_log));
    list.vector(a + "dt_bias", a + "dt_bias", {width}, {{width}});
    if (c.use_full_rank_gate) {
        list.matrix(a + "g_proj", width, c.hidden_size);
    } else {
        list.matrix(a + "g_a_proj", dim, c.hidden_size, Role::fine_matrix);
        list.matrix(a + "g_b_proj", width, dim, Role::fine_matrix);
    }
    list.norm(a + "o_norm", dim);
    list.matrix(a + "o_proj", c.hidden_size, width);
}

void add_mla(List& list, const ModelConfig& c) {
    const int64_t heads = c.num_attention_heads, rank = c.kv_lora_rank;
    const std::string a = "self_attn.";
    if (c.q_lora_rank > 0) {
        list.matrix(a + "q_a_proj", c.q_lora_rank, c.hidden_size, Role::fine_matrix);
        list.norm(a + "q_a_layernorm", c.q_lora_rank);
        list.matrix(a + "q_b_proj", heads * c.q_head_dim(), c.q_lora_rank);
    } else {
        list.matrix(a + "q_proj", heads * c.q_head_dim(), c.hidden_size);
    }
    list.matrix(a + "kv_a_proj_with_mqa", rank + c.qk_rope_head_dim, c.hidden_size, Role::fine_matrix);
    list.norm(a + "kv_a_layernorm", rank);
    const std::string kv_b = a + "kv_b_proj.weight";
    const Shape kv_b_shape{heads * (c.qk_nope_head_dim + c.v_head_dim), rank};
    list.add(a + "k_absorb", kv_b, Role::k_absorb, {heads, rank, c.qk_nope_head_dim}, {kv_b_shape});
    list.add(a + "v_up", kv_b, Role::v_up, {heads, c.v_head_dim, rank}, {kv_b_shape});
    if (c.mla_use_output_gate) list.matrix(a + "g_proj", heads * c.v_head_dim, c.hidden_size);
    list.matrix(a + "o_proj", c.hidden_size, heads * c.v_head_dim);
}

void add_mlp(List& list, const std::string& name, int64_t hidden, int64_t width) {
    list.matrix(name + ".gate_proj", width, hidden);
    list.matrix(name + ".up_proj", width, hidden);
    list.matrix(name + ".down_proj", hidden, width);
}

void add_moe(List& list, const ModelConfig& c) {
    const std::string m = "block_sparse_moe.";
    list.matrix(m + "gate", c.num_experts, c.hidden_size, Role::router);
    list.vector(m + "gate.e_score_correction_bias", m + "gate.e_score_correction_bias", {c.num_experts},
                {{c.num_experts}});
    if (c.routed_expert_hidden_size > 0) {
        const int64_t latent = c.routed_expert_hidden_size;
        list.matrix(m + "routed_expert_down_proj", latent, c.hidden_size, Role::fine_matrix);
        if (c.latent_moe_use_norm) list.norm(m + "routed_expert_norm", latent);
        list.matrix(m + "routed_expert_up_proj", c.hidden_size, latent, Role::fine_matrix);
    }
    if (c.num_shared_experts > 0) {
        add_mlp(list, m + "shared_experts", c.hidden_size, c.num_shared_experts * c.moe_intermediate_size);
    }
}

}  // namespace

std::vector<TensorSpec> trunk_tensors(const ModelConfig& c) {
    std::vector<TensorSpec> out;
    List list(c, out);
    list.enter(-1);
    list.add("embed_tokens", "embed_tokens.weight", Role::embedding, {c.vocab_size, c.hidden_size},
             {{c.vocab_size, c.hidden_size}});
    for (int64_t layer = 0; layer < c.num_hidden_layers; layer++) {
        list.enter(layer);
        if (c.attn_res_block_size > 0 && layer > 0) add_attn_res(list, "self_attention_res", c.hidden_size);
        list.norm("input_layernorm", c.hidden_size);
        if (c.kda_layer[static_cast<size_t>(layer)]) {
            add_kda(list, c);
        } else {
            add_mla(list, c);
        }
        if (c.attn_res_block_size > 0) add_attn_res(list, "mlp_res", c.hidden_size);
        list.norm("post_attention_layernorm", c.hidden_size);
        if (c.is_moe(layer)) {
            add_moe(list, c);
        } else {
            add_mlp(list, "mlp", c.hidden_size, c.intermediate_size);
        }
    }
    list.enter(c.num_hidden_layers);
    if (c.attn_res_block_size > 0) add_attn_res(list, "output_attn_res", c.hidden_size);
    list.norm("norm", c.hidden_size);
    list.head();
    return out;
}

std::vector<std::string> unused_tensors(const ModelConfig& c) {
    if (c.attn_res_block_size == 0) return {};
    const std::string layer0 = c.tensor_prefix + "model.layers.0.self_attention_res_";
    return {layer0 + "norm.weight", layer0 + "proj.weight"};
}

std::string expert_tensor(const ModelConfig& c, int64_t layer, int64_t expert, const char* which) {
    return fmt::format("{}model.layers.{}.block_sparse_moe.experts.{}.{}", c.tensor_prefix, layer, expert,
                       which);
}

std::optional<int64_t> layer_of_tensor(std::string_view name, int64_t layers) {
    constexpr std::string_view kPrefix = "layers.";
    if (!name.starts_with(kPrefix)) return std::nullopt;
    name.remove_prefix(kPrefix.size());
    uint32_t layer = 0;
    const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), layer);
    const bool whole = error == std::errc() && end < name.data() + name.size() && *end == '.';
    return whole && layer < layers ? std::optional<int64_t>(layer) : std::nullopt;
}

}  // namespace waste::engine
