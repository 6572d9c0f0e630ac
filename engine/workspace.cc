#include "engine/workspace.h"

#include <algorithm>

#include "kernels/mla.h"
#include "kernels/quantize.h"

namespace waste::engine {
namespace {

/// Hands out consecutive pieces of a block; over a null block it only counts.
class Carver {
  public:
    explicit Carver(float* base) : base_(base) {}

    float* floats(int64_t n) {
        const int64_t at = used_;
        used_ += (n + 15) / 16 * 16;  // every piece starts on a cache line
        return base_ ? base_ + at : nullptr;
    }

    void input(Input& input, int64_t most_cols) {
        const int64_t padded = kernels::padded_cols(most_cols);
        input.most_cols = most_cols;
        input.codes = reinterpret_cast<int8_t*>(floats(padded / 4));
        input.scales = floats(padded / kernels::kGroupCols);
        input.sums = reinterpret_cast<int32_t*>(floats(padded / kernels::kGroupCols));
    }

    int64_t used() const { return used_; }

  private:
    float* base_;
    int64_t used_ = 0;
};

int64_t widest_mlp(const ModelConfig& c) {
    return std::max(c.intermediate_size, c.num_shared_experts * c.moe_intermediate_size);
}

void carve(Carver& take, const ModelConfig& c, Workspace& w) {
    const int64_t d = c.hidden_size, width = c.kda_width(), heads = c.num_attention_heads;
    const int64_t mixer = std::max(width, heads * c.v_head_dim), top_k = c.num_experts_per_token;
    const int64_t expert_in = c.expert_input_size(), inner = c.moe_intermediate_size;
    w.stream = take.floats(d);
    w.snapshots = take.floats(c.attn_res_snapshots() * d);
    w.mixed = take.floats(d);
    w.normed = take.floats(d);
    w.sublayer = take.floats(d);
    w.q = take.floats(width);
    w.k = take.floats(width);
    w.v = take.floats(width);
    w.low_rank = take.floats(2 * c.kda_head_dim);
    w.decay = take.floats(width);
    w.beta = take.floats(c.kda_num_heads);
    w.gate = take.floats(mixer);
    w.mixer_out = take.floats(mixer);
    w.q_low_rank = take.floats(c.q_lora_rank);
    w.mla_query = take.floats(heads * c.q_head_dim());
    w.kv = take.floats(c.kv_lora_rank + c.qk_rope_head_dim);
    w.query_latent = take.floats(heads * c.kv_lora_rank);
    w.context_latent = take.floats(heads * c.kv_lora_rank);
    w.mla_scratch = take.floats(heads * (kernels::kMlaBlock + c.kv_lora_rank));
    w.router_logits = take.floats(c.num_experts);
    w.router_scratch = take.floats(2 * c.num_experts);
    w.router_weights = take.floats(top_k);
    w.expert_input = take.floats(expert_in);
    w.expert_gate = take.floats(top_k * inner);
    w.expert_up = take.floats(top_k * inner);
    w.expert_out = take.floats(top_k * expert_in);
    w.expert_sum = take.floats(expert_in);
    w.mlp_gate = take.floats(widest_mlp(c));
    w.mlp_up = take.floats(widest_mlp(c));
    w.mlp_out = take.floats(d);
    w.logits = take.floats(c.vocab_size);
    take.input(w.input, std::max({d, mixer, widest_mlp(c), expert_in}));
    const int64_t several =
        std::max({c.qk_nope_head_dim, c.kv_lora_rank, inner, c.q_lora_rank, c.kda_head_dim});
    for (Input& input : w.inputs) take.input(input, several);
}

Workspace with_lists(const ModelConfig& c) {
    Workspace w;
    const auto top_k = static_cast<size_t>(c.num_experts_per_token);
    const size_t several = std::max(static_cast<size_t>(c.num_attention_heads), top_k);
    w.inputs.resize(several);
    w.expert_matrices.resize(3 * top_k);
    w.expert_ids.resize(top_k);
    w.products.reserve(std::max<size_t>(2 * several, 8));
    return w;
}

}  // namespace

int64_t Workspace::bytes(const ModelConfig& config) {
    Workspace counted = with_lists(config);
    Carver take(nullptr);
    carve(take, config, counted);
    return take.used() * static_cast<int64_t>(sizeof(float));
}

Result<Workspace> Workspace::allocate(const ModelConfig& config) {
    Workspace out = with_lists(config);
    auto memory = Buffer::allocate(bytes(config) / static_cast<int64_t>(sizeof(float)), "activations");
    if (!memory) return pass(memory);
    out.memory_ = std::move(*memory);
    Carver take(out.memory_.data());
    carve(take, config, out);
    return out;
}

}  // namespace waste::engine
