// Multi-head latent attention without rotation, absorbed: only the latent and the shared key part are kept.
#include "kernels/mla.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "engine/layers/step.h"

namespace waste::engine {
namespace {

/// The block's queries, its latents appended to the cache, and the output gate.
void project(Step& step, const MlaWeights& weights, MlaState& state) {
    const ModelConfig& c = step.config;
    const kernels::NormKernels& norm = *step.executor.kernels().norm;
    Workspace& w = step.workspace;
    const int64_t query_width = c.num_attention_heads * c.q_head_dim();
    const int64_t kv_width = c.kv_lora_rank + c.qk_rope_head_dim;
    w.products.clear();
    w.products.push_back(weights.q_a_proj ? Product{&*weights.q_a_proj, &w.input, w.q_low_rank, c.q_lora_rank}
                                          : Product{&weights.q_proj, &w.input, w.mla_query, query_width});
    w.products.push_back({&weights.kv_a_proj, &w.input, w.kv, kv_width});
    if (weights.g_proj) {
        w.products.push_back({&*weights.g_proj, &w.input, w.gate, c.num_attention_heads * c.v_head_dim});
    }
    step.executor.multiply(w.products);
    step.executor.each_token(step.tokens, [&](int64_t t) {
        if (weights.q_a_proj) {
            float* q = w.q_low_rank + t * c.q_lora_rank;
            norm.rms_norm(q, weights.q_a_norm.data(), kLoraNormEps, c.q_lora_rank, q);
        }
        const float* kv = w.kv + t * kv_width;
        const int64_t position = step.position + t;
        norm.rms_norm(kv, weights.kv_a_norm.data(), kLoraNormEps, c.kv_lora_rank,
                      state.latent + position * c.kv_lora_rank);
        std::memcpy(state.rope + position * c.qk_rope_head_dim, kv + c.kv_lora_rank,
                    static_cast<size_t>(c.qk_rope_head_dim) * sizeof(float));
    });
    if (weights.q_a_proj) {
        w.low_rank[0].set(w.q_low_rank, c.q_lora_rank, c.q_lora_rank, step.tokens);
        const Product up{&weights.q_proj, &w.low_rank[0], w.mla_query, query_width};
        step.executor.multiply({&up, 1});
    }
}

/// One product per head: y[t][h] = weights[h] x[t][h]; x and y have `heads` rows of the given strides a token.
void multiply_heads(Step& step, const std::vector<Matrix>& weights, int64_t tokens, const float* x,
                    int64_t x_stride, float* y, int64_t y_stride) {
    Workspace& w = step.workspace;
    const auto heads = static_cast<int64_t>(weights.size());
    w.products.clear();
    for (int64_t h = 0; h < heads; h++) {
        const Matrix& weight = weights[static_cast<size_t>(h)];
        Input& input = w.inputs[static_cast<size_t>(h)];
        input.set(x + h * x_stride, weight.panels.cols, heads * x_stride, tokens);
        w.products.push_back({&weight, &input, y + h * y_stride, heads * y_stride});
    }
    step.executor.multiply(w.products);
}

/// Attention of some tokens of a tile. Work is cut by token, group of heads and span of positions; the spans'
/// softmaxes are merged in ascending order, so the cut shows in the time only.
class Attention {
  public:
    Attention(Step& step, const MlaState& state, int64_t tile_begin)
        : step_(step), c_(step.config), w_(step.workspace), state_(state), tile_begin_(tile_begin) {}

    /// Tokens [begin, end) of the tile, whose partial softmaxes must have room in the workspace.
    void run(int64_t begin, int64_t end) {
        spans_ = span_count(end - 1);
        const int64_t heads = c_.num_attention_heads;
        group_ = heads_a_task((end - begin) * spans_);
        const int64_t groups = (heads + group_ - 1) / group_;
        step_.executor.pool().run((end - begin) * groups * spans_, [&](int64_t task, int thread) {
            const int64_t token = begin + task / spans_ / groups;
            attend(token, begin, task / spans_ % groups * group_, task % spans_,
                   w_.scratch[static_cast<size_t>(thread)]);
        });
        if (spans_ == 1) return;
        step_.executor.pool().run((end - begin) * groups, [&](int64_t task) {
            merge(begin + task / groups, begin, task % groups * group_);
        });
    }

    /// Spans that the token sees.
    int64_t span_count(int64_t token) const { return (positions(token) - 1) / kernels::kMlaSpan + 1; }

  private:
    /// As many heads as the kernel takes, because they share the latents they read; half of them, or one, where that
    /// would leave threads without a task. The kernel is at its best with multiples of four.
    int64_t heads_a_task(int64_t pieces) const {
        const int64_t tasks_wanted = step_.executor.threads();
        for (const int64_t group : {kernels::kMlaHeads, kernels::kMlaHeads / 2}) {
            if ((c_.num_attention_heads + group - 1) / group * pieces >= tasks_wanted) return group;
        }
        return 1;
    }

    int64_t positions(int64_t token) const { return step_.position + tile_begin_ + token + 1; }
    int64_t heads_from(int64_t head) const { return std::min(group_, c_.num_attention_heads - head); }

    kernels::MlaPartial partial(int64_t token, int64_t begin, int64_t head, int64_t span) const {
        const int64_t at = ((token - begin) * spans_ + span) * c_.num_attention_heads + head;
        return {w_.partial_maximum + at, w_.partial_sum + at, w_.partial_weighted + at * c_.kv_lora_rank};
    }

    void attend(int64_t token, int64_t begin, int64_t head, int64_t span, float* scratch) const {
        if (span >= span_count(token)) return;
        const int64_t heads = c_.num_attention_heads;
        const int64_t in_block = tile_begin_ + token;
        kernels::MlaQuery query{};
        query.q_latent = w_.query_latent + (token * heads + head) * c_.kv_lora_rank;
        query.latent_stride = c_.kv_lora_rank;
        query.q_rope = w_.mla_query + (in_block * heads + head) * c_.q_head_dim() + c_.qk_nope_head_dim;
        query.rope_stride = c_.q_head_dim();
        query.heads = heads_from(head);
        query.latent = state_.latent;
        query.rope = state_.rope;
        query.rank = c_.kv_lora_rank;
        query.rope_dim = c_.qk_rope_head_dim;
        query.scale = 1.0f / std::sqrt(static_cast<float>(c_.q_head_dim()));
        const int64_t from = span * kernels::kMlaSpan;
        const int64_t to = std::min(from + kernels::kMlaSpan, positions(token));
        const kernels::MlaPartial out = partial(token, begin, head, span);
        step_.executor.kernels().mla->attend(query, from, to, scratch, out);
        if (spans_ == 1) finish(token, head, out);
    }

    void merge(int64_t token, int64_t begin, int64_t head) const {
        const kernels::MlaPartial all = partial(token, begin, head, 0);
        for (int64_t span = 1; span < span_count(token); span++) {
            step_.executor.kernels().mla->merge(heads_from(head), c_.kv_lora_rank,
                                                partial(token, begin, head, span), all);
        }
        finish(token, head, all);
    }

    void finish(int64_t token, int64_t head, const kernels::MlaPartial& all) const {
        float* out = w_.context_latent + (token * c_.num_attention_heads + head) * c_.kv_lora_rank;
        step_.executor.kernels().mla->finish(heads_from(head), c_.kv_lora_rank, all, out, c_.kv_lora_rank);
    }

    Step& step_;
    const ModelConfig& c_;
    Workspace& w_;
    const MlaState& state_;
    int64_t tile_begin_;
    int64_t spans_ = 1;
    int64_t group_ = 1;
};

void attend_tile(Step& step, const MlaWeights& weights, const MlaState& state, int64_t begin,
                 int64_t tokens) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t heads = c.num_attention_heads;
    multiply_heads(step, weights.k_absorb, tokens, w.mla_query + begin * heads * c.q_head_dim(),
                   c.q_head_dim(), w.query_latent, c.kv_lora_rank);
    Attention attention(step, state, begin);
    const int64_t together = std::max<int64_t>(1, w.partials / attention.span_count(tokens - 1));
    for (int64_t t = 0; t < tokens; t += together) attention.run(t, std::min(tokens, t + together));
    multiply_heads(step, weights.v_up, tokens, w.context_latent, c.kv_lora_rank,
                   w.mixer_out + begin * heads * c.v_head_dim, c.v_head_dim);
}

}  // namespace

void mla_layer(Step& step, const MlaWeights& weights, MlaState& state, const float* x, float* out) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t value_width = c.num_attention_heads * c.v_head_dim;
    {
        const Timed timed(step.profile, Component::mla_projections);
        w.input.set(x, c.hidden_size, c.hidden_size, step.tokens);
        project(step, weights, state);
    }
    {
        const Timed timed(step.profile, Component::mla_attention);
        for (int64_t begin = 0; begin < step.tokens; begin += kMlaTile) {
            attend_tile(step, weights, state, begin, std::min(kMlaTile, step.tokens - begin));
        }
    }
    const Timed timed(step.profile, Component::mla_projections);
    if (weights.g_proj) {
        step.executor.each_token(step.tokens, [&](int64_t t) {
            float* values = w.mixer_out + t * value_width;
            step.executor.kernels().activation->sigmoid_gate(values, w.gate + t * value_width, value_width,
                                                             values);
        });
    }
    w.input.set(w.mixer_out, value_width, value_width, step.tokens);
    const Product output{&weights.o_proj, &w.input, out, c.hidden_size};
    step.executor.multiply({&output, 1});
}

}  // namespace waste::engine
