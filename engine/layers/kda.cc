// Kimi Delta Attention: projections, short convolutions, the recurrent step of each head, the gated norm.
#include <cmath>

#include "engine/layers/step.h"
#include "kernels/activation.h"
#include "kernels/conv.h"
#include "kernels/norm.h"

namespace waste::engine {
namespace {

/// Everything between the input and the output projections, for one head.
void run_head(Step& step, const KdaWeights& weights, KdaState& state, int64_t head) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t dim = c.kda_head_dim, begin = head * dim, end = begin + dim;
    const int64_t oldest = step.position % (c.conv_kernel_size - 1);
    const auto convolve = [&](std::span<const float> weight, float* ring, float* x) {
        kernels::short_conv_step(x, weight.data(), c.conv_kernel_size, oldest, c.kda_width(), begin, end,
                                 ring, x);
    };
    convolve(weights.q_conv, state.q_ring, w.q);
    convolve(weights.k_conv, state.k_ring, w.k);
    convolve(weights.v_conv, state.v_ring, w.v);
    float *q = w.q + begin, *k = w.k + begin, *v = w.v + begin, *decay = w.decay + begin;
    kernels::l2_norm(q, 1.0f / std::sqrt(static_cast<float>(dim)), dim, q);
    kernels::l2_norm(k, 1.0f, dim, k);
    const float a_log = weights.a_log[static_cast<size_t>(head)];
    const float* dt_bias = weights.dt_bias.data() + begin;
    if (c.gate_lower_bound) {
        kernels::kda_decay_bounded(decay, dt_bias, a_log, *c.gate_lower_bound, dim, decay);
    } else {
        kernels::kda_decay_softplus(decay, dt_bias, a_log, dim, decay);
    }
    const kernels::KdaHead args{q, k, v, decay, kernels::sigmoid(w.beta[head]), dim, dim};
    float* out = w.mixer_out + begin;
    step.executor.kernels().kda_step(args, state.state + head * dim * dim, out);
    kernels::rms_norm_gated(out, weights.o_norm.data(), w.gate + begin, c.rms_norm_eps, dim, out);
}

}  // namespace

void kda_layer(Step& step, const KdaWeights& weights, KdaState& state, const float* x, float* out) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    float *f_a = w.low_rank, *g_a = w.low_rank + c.kda_head_dim;
    const bool full_rank = weights.g_proj.has_value();

    w.input.set(x, c.hidden_size);
    const Product from_x[] = {
        {&weights.q_proj, &w.input, w.q},
        {&weights.k_proj, &w.input, w.k},
        {&weights.v_proj, &w.input, w.v},
        full_rank ? Product{&*weights.g_proj, &w.input, w.gate} : Product{&*weights.g_a_proj, &w.input, g_a},
        {&weights.f_a_proj, &w.input, f_a},
        {&weights.b_proj, &w.input, w.beta},
    };
    step.executor.multiply(from_x);

    w.inputs[0].set(f_a, c.kda_head_dim);
    const Product from_f_a{&weights.f_b_proj, &w.inputs[0], w.decay};
    step.executor.multiply({&from_f_a, 1});
    if (!full_rank) {
        w.inputs[0].set(g_a, c.kda_head_dim);
        const Product from_g_a{&*weights.g_b_proj, &w.inputs[0], w.gate};
        step.executor.multiply({&from_g_a, 1});
    }

    step.executor.pool().run(c.kda_num_heads, [&](int64_t head) { run_head(step, weights, state, head); });

    w.input.set(w.mixer_out, c.kda_width());
    const Product output{&weights.o_proj, &w.input, out};
    step.executor.multiply({&output, 1});
}

}  // namespace waste::engine
