#include "engine/weights.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "engine/tensor_list.h"

namespace waste::engine {
namespace {

using container::Container;
using container::Layout;
using container::TensorView;

Result<void> check_tensors(const Container& container, const ModelConfig& config) {
    const std::string& place = container.directory();
    for (const TensorSpec& spec : trunk_tensors(config)) {
        const auto view = container.tensor(spec.name);
        if (!view) return pass(view);
        const container::TensorEntry& entry = *view->entry;
        const bool rows = spec.role == Role::embedding || spec.role == Role::vector;
        const bool plain = spec.role != Role::vector || entry.format == kernels::Format::f32;
        if (entry.shape != spec.shape || (entry.layout == Layout::rows) != rows || !plain) {
            return fail(
                ErrorKind::corrupt, fmt::format("{}: tensor {}", place, spec.name),
                fmt::format("has shape [{}], the config asks for [{}] in {}", fmt::join(entry.shape, ", "),
                            fmt::join(spec.shape, ", "), rows ? "rows" : "panels"));
        }
    }
    return {};
}

Result<void> check_banks(const Container& container, const ModelConfig& config) {
    const auto& banks = container.manifest().banks;
    size_t next = 0;
    for (int64_t layer = 0; layer < config.num_hidden_layers; layer++) {
        if (!config.is_moe(layer)) continue;
        const auto place = fmt::format("{}: experts of layer {}", container.directory(), layer);
        if (next == banks.size() || banks[next].layer != layer) {
            return fail(ErrorKind::corrupt, place, "the container has no bank for them");
        }
        const container::BankShape& shape = banks[next++].shape;
        if (shape.experts != config.num_experts || shape.input_size != config.expert_input_size() ||
            shape.intermediate_size != config.moe_intermediate_size) {
            return fail(
                ErrorKind::corrupt, place,
                fmt::format("the bank holds {} of {} x {}, the config asks for {} of {} x {}", shape.experts,
                            shape.intermediate_size, shape.input_size, config.num_experts,
                            config.moe_intermediate_size, config.expert_input_size()));
        }
    }
    if (next != banks.size()) {
        return fail(ErrorKind::corrupt, container.directory(),
                    fmt::format("holds {} expert banks, the config asks for {}", banks.size(), next));
    }
    return {};
}

/// Looks tensors up by name; check_tensors has made sure that they are there.
class Binder {
  public:
    Binder(const Container& container, const ModelConfig& config, const Trunk& trunk)
        : container_(container), config_(config), trunk_(trunk) {}

    void enter(int64_t layer) { prefix_ = fmt::format("layers.{}.", layer); }
    void leave() { prefix_.clear(); }

    TensorView mapped(const std::string& name) const { return *container_.tensor(prefix_ + name); }
    TensorView view(const std::string& name) const {
        const TensorView view = mapped(name);
        return {view.entry, trunk_.bytes_of(view)};
    }
    Matrix matrix(const std::string& name, int64_t batch = 0) const {
        const TensorView v = view(name);
        return {v.panels(batch), v.entry->format};
    }
    std::span<const float> floats(const std::string& name) const { return view(name).floats(); }

    std::vector<Matrix> per_head(const std::string& name) const {
        std::vector<Matrix> out;
        for (int64_t head = 0; head < config_.num_attention_heads; head++) out.push_back(matrix(name, head));
        return out;
    }

    std::vector<float> mix(const std::string& name) const {
        const auto norm = mapped(name + "_norm").floats(), proj = mapped(name + "_proj").floats();
        std::vector<float> out(norm.size());
        for (size_t i = 0; i < out.size(); i++) out[i] = norm[i] * proj[i];
        return out;
    }

    MlpWeights mlp(const std::string& name) const {
        return {matrix(name + ".gate_proj"), matrix(name + ".up_proj"), matrix(name + ".down_proj")};
    }

    KdaWeights kda() const {
        const std::string a = "self_attn.";
        KdaWeights w{};
        w.q_proj = matrix(a + "q_proj");
        w.k_proj = matrix(a + "k_proj");
        w.v_proj = matrix(a + "v_proj");
        w.q_conv = floats(a + "q_conv1d");
        w.k_conv = floats(a + "k_conv1d");
        w.v_conv = floats(a + "v_conv1d");
        w.f_a_proj = matrix(a + "f_a_proj");
        w.f_b_proj = matrix(a + "f_b_proj");
        w.b_proj = matrix(a + "b_proj");
        w.a_log = floats(a + "A_log");
        w.dt_bias = floats(a + "dt_bias");
        if (config_.use_full_rank_gate) {
            w.g_proj = matrix(a + "g_proj");
        } else {
            w.g_a_proj = matrix(a + "g_a_proj");
            w.g_b_proj = matrix(a + "g_b_proj");
        }
        w.o_norm = floats(a + "o_norm");
        w.o_proj = matrix(a + "o_proj");
        return w;
    }

    MlaWeights mla() const {
        const std::string a = "self_attn.";
        MlaWeights w{};
        if (config_.q_lora_rank > 0) {
            w.q_a_proj = matrix(a + "q_a_proj");
            w.q_a_norm = floats(a + "q_a_layernorm");
            w.q_proj = matrix(a + "q_b_proj");
        } else {
            w.q_proj = matrix(a + "q_proj");
        }
        w.kv_a_proj = matrix(a + "kv_a_proj_with_mqa");
        w.kv_a_norm = floats(a + "kv_a_layernorm");
        w.k_absorb = per_head(a + "k_absorb");
        w.v_up = per_head(a + "v_up");
        if (config_.mla_use_output_gate) w.g_proj = matrix(a + "g_proj");
        w.o_proj = matrix(a + "o_proj");
        return w;
    }

    MoeWeights moe(size_t bank) const {
        const std::string m = "block_sparse_moe.";
        MoeWeights w{};
        w.router = matrix(m + "gate");
        w.bias = floats(m + "gate.e_score_correction_bias");
        if (config_.routed_expert_hidden_size > 0) {
            w.latent_down = matrix(m + "routed_expert_down_proj");
            w.latent_up = matrix(m + "routed_expert_up_proj");
            if (config_.latent_moe_use_norm) w.latent_norm = floats(m + "routed_expert_norm");
        }
        if (config_.num_shared_experts > 0) w.shared = mlp(m + "shared_experts");
        w.bank = bank;
        return w;
    }

  private:
    const Container& container_;
    const ModelConfig& config_;
    const Trunk& trunk_;
    std::string prefix_;
};

}  // namespace

Result<ModelWeights> bind_weights(const Container& container, const ModelConfig& config, const Trunk& trunk) {
    if (const auto ok = check_tensors(container, config); !ok) return pass(ok);
    if (const auto ok = check_banks(container, config); !ok) return pass(ok);
    Binder bind(container, config, trunk);
    ModelWeights out{};
    out.embedding = bind.mapped("embed_tokens");
    size_t bank = 0;
    for (int64_t layer = 0; layer < config.num_hidden_layers; layer++) {
        bind.enter(layer);
        LayerWeights w{};
        if (config.attn_res_block_size > 0) {
            if (layer > 0) w.attn_mix = bind.mix("self_attention_res");
            w.mlp_mix = bind.mix("mlp_res");
        }
        w.input_norm = bind.floats("input_layernorm");
        w.post_attention_norm = bind.floats("post_attention_layernorm");
        if (config.kda_layer[static_cast<size_t>(layer)]) {
            w.kda = bind.kda();
        } else {
            w.mla = bind.mla();
        }
        if (config.is_moe(layer)) {
            w.moe = bind.moe(bank++);
        } else {
            w.mlp = bind.mlp("mlp");
        }
        out.layers.push_back(std::move(w));
    }
    bind.leave();
    if (config.attn_res_block_size > 0) out.output_mix = bind.mix("output_attn_res");
    out.norm = bind.floats("norm");
    out.lm_head = bind.matrix("lm_head");
    return out;
}

}  // namespace waste::engine
