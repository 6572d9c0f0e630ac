// Multi-head latent attention without rotation, absorbed: only the latent and the shared key part are kept.
#include "kernels/mla.h"

#include <cmath>
#include <cstring>

#include "engine/layers/step.h"
#include "kernels/activation.h"
#include "kernels/norm.h"

namespace waste::engine {
namespace {

/// One product per head: y[h] = weights[h] x[h], x and y strided.
void multiply_heads(Step& step, const std::vector<Matrix>& weights, const float* x, int64_t x_stride,
                    float* y, int64_t y_stride) {
    Workspace& w = step.workspace;
    w.products.clear();
    for (size_t head = 0; head < weights.size(); head++) {
        const auto h = static_cast<int64_t>(head);
        w.inputs[head].set(x + h * x_stride, weights[head].panels.cols);
        w.products.push_back({&weights[head], &w.inputs[head], y + h * y_stride});
    }
    step.executor.multiply(w.products);
}

void project_query(Step& step, const MlaWeights& weights) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    if (weights.q_a_proj) {
        const Product down{&*weights.q_a_proj, &w.input, w.q_low_rank};
        step.executor.multiply({&down, 1});
        kernels::rms_norm(w.q_low_rank, weights.q_a_norm.data(), kLoraNormEps, c.q_lora_rank, w.q_low_rank);
        w.inputs[0].set(w.q_low_rank, c.q_lora_rank);
        const Product up{&weights.q_proj, &w.inputs[0], w.mla_query};
        step.executor.multiply({&up, 1});
    } else {
        const Product direct{&weights.q_proj, &w.input, w.mla_query};
        step.executor.multiply({&direct, 1});
    }
}

/// Appends this token's latent and shared key part to the cache.
void append_latent(Step& step, const MlaWeights& weights, MlaState& state) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const Product product{&weights.kv_a_proj, &w.input, w.kv};
    step.executor.multiply({&product, 1});
    float* latent = state.latent + step.position * c.kv_lora_rank;
    kernels::rms_norm(w.kv, weights.kv_a_norm.data(), kLoraNormEps, c.kv_lora_rank, latent);
    std::memcpy(state.rope + step.position * c.qk_rope_head_dim, w.kv + c.kv_lora_rank,
                static_cast<size_t>(c.qk_rope_head_dim) * sizeof(float));
}

void attend(Step& step, const MlaState& state) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const float scale = 1.0f / std::sqrt(static_cast<float>(c.q_head_dim()));
    step.executor.pool().run(c.num_attention_heads, [&](int64_t head) {
        kernels::MlaQuery query{};
        query.q_latent = w.query_latent + head * c.kv_lora_rank;
        query.q_rope = w.mla_query + head * c.q_head_dim() + c.qk_nope_head_dim;
        query.latent = state.latent;
        query.rope = state.rope;
        query.positions = step.position + 1;
        query.rank = c.kv_lora_rank;
        query.rope_dim = c.qk_rope_head_dim;
        query.scale = scale;
        kernels::mla_attend(query, w.mla_scratch + head * (kernels::kMlaBlock + c.kv_lora_rank),
                            w.context_latent + head * c.kv_lora_rank);
    });
}

}  // namespace

void mla_layer(Step& step, const MlaWeights& weights, MlaState& state, const float* x, float* out) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t value_width = c.num_attention_heads * c.v_head_dim;
    w.input.set(x, c.hidden_size);
    project_query(step, weights);
    append_latent(step, weights, state);
    if (weights.g_proj) {
        const Product gate{&*weights.g_proj, &w.input, w.gate};
        step.executor.multiply({&gate, 1});
    }
    multiply_heads(step, weights.k_absorb, w.mla_query, c.q_head_dim(), w.query_latent, c.kv_lora_rank);
    attend(step, state);
    multiply_heads(step, weights.v_up, w.context_latent, c.kv_lora_rank, w.mixer_out, c.v_head_dim);
    if (weights.g_proj) kernels::sigmoid_gate(w.mixer_out, w.gate, value_width, w.mixer_out);
    w.input.set(w.mixer_out, value_width);
    const Product output{&weights.o_proj, &w.input, out};
    step.executor.multiply({&output, 1});
}

}  // namespace waste::engine
