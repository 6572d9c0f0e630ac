// Kimi Delta Attention: projections, short convolutions, the recurrence of each head, the gated norm.
#include <algorithm>
#include <cmath>

#include "engine/layers/step.h"

namespace waste::engine {
namespace {

/// Everything between the input and the output projections, for one head and the tokens [begin, end) of the
/// block. It reads and writes the head's columns only, so they stay in cache from one operation to the next.
void run_tokens(Step& step, const KdaWeights& weights, KdaState& state, int64_t head, int64_t begin,
                int64_t end, float* scratch) {
    const ModelConfig& c = step.config;
    const kernels::KernelSet& kernels = step.executor.kernels();
    Workspace& w = step.workspace;
    const int64_t width = c.kda_width(), dim = c.kda_head_dim, tokens = end - begin;
    const int64_t column = head * dim, first = begin * width + column;
    const auto convolve = [&](std::span<const float> weight, float* ring, float* x) {
        const kernels::ConvCall call{weight.data() + column * c.conv_kernel_size,
                                     ring + column,
                                     width,
                                     c.conv_kernel_size,
                                     dim,
                                     step.position + begin,
                                     tokens};
        kernels.conv->short_conv(call, x + first, width, x + first, width);
    };
    convolve(weights.q_conv, state.q_ring, w.q);
    convolve(weights.k_conv, state.k_ring, w.k);
    convolve(weights.v_conv, state.v_ring, w.v);
    const float query_scale = 1.0f / std::sqrt(static_cast<float>(dim));
    for (int64_t t = 0; t < tokens; t++) {
        float* q = w.q + first + t * width;
        float* k = w.k + first + t * width;
        kernels.norm->l2_norm(q, query_scale, dim, q);
        kernels.norm->l2_norm(k, 1.0f, dim, k);
    }
    const kernels::KdaSequence sequence{0, tokens, step.position + begin, 0};
    kernels::KdaCall call{};
    call.key_dim = call.value_dim = dim;
    call.q = w.q + first;
    call.k = w.k + first;
    call.v = w.v + first;
    call.gate = w.decay + first;
    call.stride = width;
    call.beta = w.beta + begin * c.kda_num_heads + head;
    call.beta_stride = c.kda_num_heads;
    call.beta_is_logit = true;
    call.gate_form = c.gate_lower_bound ? kernels::KdaGate::bounded : kernels::KdaGate::softplus;
    call.dt_bias = weights.dt_bias.data() + column;
    call.a_log = weights.a_log[static_cast<size_t>(head)];
    call.lower_bound = c.gate_lower_bound.value_or(0.0f);
    call.states = state.state + head * dim * dim;
    call.sequences = {&sequence, 1};
    call.out = w.mixer_out + first;
    call.out_stride = width;
    kernels::kda_run(kernels, call, scratch);
    for (int64_t t = 0; t < tokens; t++) {
        float* out = w.mixer_out + first + t * width;
        kernels.norm->rms_norm_gated(out, weights.o_norm.data(), w.gate + first + t * width, c.rms_norm_eps,
                                     dim, out);
    }
}

}  // namespace

void kda_layer(Step& step, const KdaWeights& weights, KdaState& state, const float* x, float* out) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t width = c.kda_width(), dim = c.kda_head_dim;
    const bool full_rank = weights.g_proj.has_value();
    {
        const Timed timed(step.profile, Component::kda_projections);
        w.input.set(x, c.hidden_size, c.hidden_size, step.tokens);
        const Product from_x[] = {
            {&weights.q_proj, &w.input, w.q, width},
            {&weights.k_proj, &w.input, w.k, width},
            {&weights.v_proj, &w.input, w.v, width},
            full_rank ? Product{&*weights.g_proj, &w.input, w.gate, width}
                      : Product{&*weights.g_a_proj, &w.input, w.g_low, dim},
            {&weights.f_a_proj, &w.input, w.f_low, dim},
            {&weights.b_proj, &w.input, w.beta, c.kda_num_heads},
        };
        step.executor.multiply(from_x);
        w.low_rank[0].set(w.f_low, dim, dim, step.tokens);
        w.low_rank[1].set(w.g_low, dim, dim, step.tokens);
        const Product from_low_rank[] = {
            {&weights.f_b_proj, &w.low_rank[0], w.decay, width},
            {full_rank ? nullptr : &*weights.g_b_proj, &w.low_rank[1], w.gate, width}};
        step.executor.multiply(std::span(from_low_rank).first(full_rank ? 1 : 2));
    }
    {
        const Timed timed(step.profile, Component::kda_heads);
        step.executor.pool().run(c.kda_num_heads, [&](int64_t head, int thread) {
            float* scratch = w.scratch[static_cast<size_t>(thread)];
            // Less than a chunk at a time is never evaluated as one.
            const int64_t piece = step.form == KdaForm::chunks ? kernels::kKdaChunk : kernels::kKdaChunk / 2;
            for (int64_t begin = 0; begin < step.tokens;) {
                const int64_t left_in_piece = piece - (step.position + begin) % piece;
                const int64_t end = std::min(step.tokens, begin + left_in_piece);
                run_tokens(step, weights, state, head, begin, end, scratch);
                begin = end;
            }
        });
    }
    const Timed timed(step.profile, Component::kda_projections);
    w.input.set(w.mixer_out, width, width, step.tokens);
    const Product output{&weights.o_proj, &w.input, out, c.hidden_size};
    step.executor.multiply({&output, 1});
}

}  // namespace waste::engine
