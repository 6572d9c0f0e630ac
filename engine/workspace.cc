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
        const int64_t at = next_;
        next_ += (n + 15) / 16 * 16;  // every piece starts on a cache line
        used_ = std::max(used_, next_);
        return base_ ? base_ + at : nullptr;
    }

    void input(Input& input, int64_t padded_elements) {
        const int64_t groups = padded_elements / kernels::kGroupCols;
        input.capacity = padded_elements;
        input.codes = reinterpret_cast<int8_t*>(floats(padded_elements / 4));
        input.scales = floats(groups);
        input.sums = reinterpret_cast<int32_t*>(floats(groups));
    }

    /// What follows may use the memory behind `place` again.
    int64_t place() const { return next_; }
    void back_to(int64_t place) { next_ = place; }

    int64_t used() const { return used_; }

  private:
    float* base_;
    int64_t next_ = 0;
    int64_t used_ = 0;
};

int64_t widest_mlp(const ModelConfig& c) {
    return std::max(c.intermediate_size, c.num_shared_experts * c.moe_intermediate_size);
}
/// What a tile's gate may take: 16 MiB.
constexpr int64_t kMlpTileFloats = 4 << 20;
constexpr int64_t kLeastMlpTile = 128;

int64_t mixer_width(const ModelConfig& c) {
    return std::max(c.kda_width(), c.num_attention_heads * c.v_head_dim);
}
int64_t span_count(int64_t positions) {
    return (positions + kernels::kMlaSpan - 1) / kernels::kMlaSpan;
}

void carve_mixers(Carver& take, const ModelConfig& c, const SessionShape& shape, Workspace& w) {
    const int64_t t = shape.block_tokens, width = c.kda_width(), heads = c.num_attention_heads;
    w.gate = take.floats(t * mixer_width(c));
    w.mixer_out = take.floats(t * mixer_width(c));
    const int64_t either = take.place();
    w.q = take.floats(t * width);
    w.k = take.floats(t * width);
    w.v = take.floats(t * width);
    w.f_low = take.floats(t * c.kda_head_dim);
    w.g_low = take.floats(t * c.kda_head_dim);
    w.decay = take.floats(t * width);
    w.beta = take.floats(t * c.kda_num_heads);
    take.back_to(either);
    const int64_t tile = std::min(t, kMlaTile);
    w.q_low_rank = take.floats(t * c.q_lora_rank);
    w.mla_query = take.floats(t * heads * c.q_head_dim());
    w.kv = take.floats(t * (c.kv_lora_rank + c.qk_rope_head_dim));
    w.query_latent = take.floats(tile * heads * c.kv_lora_rank);
    w.context_latent = take.floats(tile * heads * c.kv_lora_rank);
    w.partials = std::max(tile, span_count(shape.context_length));
    w.partial_maximum = take.floats(w.partials * heads);
    w.partial_sum = take.floats(w.partials * heads);
    w.partial_weighted = take.floats(w.partials * heads * c.kv_lora_rank);
}

void carve_feed_forward(Carver& take, const ModelConfig& c, const SessionShape& shape, Workspace& w) {
    const int64_t t = shape.block_tokens, top_k = c.num_experts_per_token;
    const int64_t expert_in = c.expert_input_size(), inner = c.moe_intermediate_size;
    const int64_t tile = std::min(t, mlp_tile(c));
    w.router_scores = take.floats(t * c.num_experts);
    w.router_choice = take.floats(t * c.num_experts);
    w.router_weights = take.floats(t * top_k);
    w.router_margins = take.floats(t);
    w.expert_input = take.floats(t * expert_in);
    w.expert_gate = take.floats(top_k * inner);
    w.expert_up = take.floats(top_k * inner);
    w.expert_out = take.floats(t * top_k * expert_in);
    w.expert_sum = take.floats(t * expert_in);
    w.mlp_gate = take.floats(tile * widest_mlp(c));
    w.mlp_up = take.floats(tile * widest_mlp(c));
    w.mlp_out = take.floats(t * c.hidden_size);
}

void carve(Carver& take, const ModelConfig& c, const SessionShape& shape, Workspace& w) {
    using kernels::padded_cols;
    const int64_t t = shape.block_tokens, d = c.hidden_size;
    w.stream = take.floats(t * d);
    w.snapshots = take.floats(c.attn_res_snapshots() * t * d);
    w.mixed = take.floats(t * d);
    w.normed = take.floats(t * d);
    w.sublayer = take.floats(t * d);
    w.logits = take.floats(std::min(t, kHeadTile) * c.vocab_size);
    take.input(w.input, std::max(t * padded_cols(std::max({d, mixer_width(c), c.expert_input_size()})),
                                 std::min(t, mlp_tile(c)) * padded_cols(widest_mlp(c))));
    const int64_t narrow = std::max(padded_cols(c.q_lora_rank), padded_cols(c.kda_head_dim));
    for (Input& input : w.low_rank) take.input(input, t * narrow);
    const int64_t head = std::max(padded_cols(c.qk_nope_head_dim), padded_cols(c.kv_lora_rank));
    const int64_t several = std::max(std::min(t, kMlaTile) * head, padded_cols(c.moe_intermediate_size));
    for (Input& input : w.inputs) take.input(input, several);
    const int64_t scratch = std::max({kernels::kda_scratch_floats(c.kda_head_dim, c.kda_head_dim),
                                      kernels::mla_scratch_floats(c.kv_lora_rank), ExpertScratch::floats(c)});
    for (float*& piece : w.scratch) piece = take.floats(scratch);
    const int64_t either = take.place();
    carve_mixers(take, c, shape, w);
    take.back_to(either);
    carve_feed_forward(take, c, shape, w);
}

void carve_expert(Carver& take, const ModelConfig& c, ExpertScratch& s) {
    using kernels::padded_cols;
    take.input(s.input, kExpertTile * padded_cols(c.expert_input_size()));
    s.rows = take.floats(kExpertTile * c.expert_input_size());
    s.gate = take.floats(kExpertTile * c.moe_intermediate_size);
    s.up = take.floats(kExpertTile * c.moe_intermediate_size);
    take.input(s.inner, kExpertTile * padded_cols(c.moe_intermediate_size));
}

/// Only what counting needs: no list is allocated for a block that may be huge.
Workspace countable(const ModelConfig& c, const SessionShape& shape) {
    Workspace w;
    const int64_t several = std::max(c.num_attention_heads, c.num_experts_per_token);
    w.inputs.resize(static_cast<size_t>(several));
    w.scratch.resize(static_cast<size_t>(shape.threads));
    return w;
}

int64_t float_bytes(const ModelConfig& c, const SessionShape& shape) {
    Workspace counted = countable(c, shape);
    Carver take(nullptr);
    carve(take, c, shape, counted);
    return take.used() * static_cast<int64_t>(sizeof(float));
}

int64_t most_pairs(const ModelConfig& c, const SessionShape& shape) {
    return shape.block_tokens * c.num_experts_per_token;
}
int64_t most_expert_tasks(const ModelConfig& c, const SessionShape& shape) {
    // Every expert may have a last task that is not full.
    const int64_t pairs = most_pairs(c, shape);
    return std::min(pairs, pairs / kExpertTile + c.num_experts);
}

/// Of those lists that grow with the block.
int64_t list_bytes(const ModelConfig& c, const SessionShape& shape) {
    constexpr int64_t kPair = sizeof(int32_t) + 2 * sizeof(int64_t), kTask = sizeof(ExpertTask);
    return kPair * most_pairs(c, shape) + kTask * most_expert_tasks(c, shape);
}

void allocate_lists(const ModelConfig& c, const SessionShape& shape, Workspace& w) {
    const auto top_k = static_cast<size_t>(c.num_experts_per_token);
    const auto pairs = static_cast<size_t>(most_pairs(c, shape));
    w.expert_matrices.resize(3 * top_k);
    w.expert_ids.resize(pairs);
    w.expert_first.resize(static_cast<size_t>(c.num_experts) + 1);
    w.pairs.resize(pairs);
    w.pair_row.resize(pairs);
    w.expert_order.resize(static_cast<size_t>(c.num_experts));
    w.expert_leases.resize(static_cast<size_t>(c.num_experts));
    w.tasks_left = std::make_unique<std::atomic<int32_t>[]>(static_cast<size_t>(c.num_experts));
    w.expert_waiting.resize(top_k);
    w.expert_tasks.reserve(static_cast<size_t>(most_expert_tasks(c, shape)));
    w.products.reserve(std::max<size_t>(2 * w.inputs.size(), 8));
}

}  // namespace

int64_t mlp_tile(const ModelConfig& config) {
    return std::clamp(kMlpTileFloats / widest_mlp(config), kLeastMlpTile, kMostBlockTokens);
}

int64_t Workspace::bytes(const ModelConfig& config, const SessionShape& shape) {
    return float_bytes(config, shape) + list_bytes(config, shape);
}

Result<Workspace> Workspace::allocate(const ModelConfig& config, const SessionShape& shape) {
    Workspace out = countable(config, shape);
    auto memory =
        Buffer::allocate(float_bytes(config, shape) / static_cast<int64_t>(sizeof(float)), "activations");
    if (!memory) return pass(memory);
    out.memory_ = std::move(*memory);
    Carver take(out.memory_.data());
    carve(take, config, shape, out);
    allocate_lists(config, shape, out);
    return out;
}

ExpertScratch::ExpertScratch(const ModelConfig& config, float* scratch) {
    Carver take(scratch);
    carve_expert(take, config, *this);
}

int64_t ExpertScratch::floats(const ModelConfig& config) {
    ExpertScratch counted(config, nullptr);
    Carver take(nullptr);
    carve_expert(take, config, counted);
    return take.used();
}

}  // namespace waste::engine
