// Mixture of experts: the router chooses, the chosen experts run on the (latent) input, their weighted sum is
// normed and projected back, the shared experts are added.
#include <algorithm>

#include "engine/layers/step.h"
#include "kernels/norm.h"
#include "kernels/router.h"

namespace waste::engine {
namespace {

void choose_experts(Step& step, const MoeWeights& weights, int64_t layer, const float* x) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    w.input.set(x, c.hidden_size);
    const Product logits{&weights.router, &w.input, w.router_logits};
    step.executor.multiply({&logits, 1});
    const kernels::RouterRule rule{c.num_experts, c.num_experts_per_token, c.moe_renormalize,
                                   c.routed_scaling_factor};
    const float margin = kernels::route(rule, w.router_logits, weights.bias.data(), w.router_scratch,
                                        w.expert_ids.data(), w.router_weights);
    if (step.trace) {
        step.trace->on_router(layer, w.expert_ids, {w.router_weights, w.expert_ids.size()}, margin);
    }
}

Result<void> find_experts(Step& step, const MoeWeights& weights) {
    Workspace& w = step.workspace;
    const kernels::Format format = step.container.manifest().banks[weights.bank].shape.format;
    step.container.prefetch(weights.bank, w.expert_ids);
    for (size_t i = 0; i < w.expert_ids.size(); i++) {
        const auto view = step.container.expert(weights.bank, w.expert_ids[i]);
        if (!view) return pass(view);
        w.expert_matrices[3 * i] = {view->gate, format};
        w.expert_matrices[3 * i + 1] = {view->up, format};
        w.expert_matrices[3 * i + 2] = {view->down, format};
    }
    return {};
}

/// expert_sum = sum_j weight_j down_j(glu(gate_j z, up_j z)), summed in the router's order.
void run_experts(Step& step, const float* z) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t inner = c.moe_intermediate_size, width = c.expert_input_size();
    const size_t top_k = w.expert_ids.size();
    w.input.set(z, width);
    w.products.clear();
    for (size_t j = 0; j < top_k; j++) {
        const int64_t at = static_cast<int64_t>(j) * inner;
        w.products.push_back({&w.expert_matrices[3 * j], &w.input, w.expert_gate + at});
        w.products.push_back({&w.expert_matrices[3 * j + 1], &w.input, w.expert_up + at});
    }
    step.executor.multiply(w.products);
    step.executor.pool().run(static_cast<int64_t>(top_k), [&](int64_t j) {
        float* gate = w.expert_gate + j * inner;
        glu(c, gate, w.expert_up + j * inner, inner, gate);
    });
    w.products.clear();
    for (size_t j = 0; j < top_k; j++) {
        const auto i = static_cast<int64_t>(j);
        w.inputs[j].set(w.expert_gate + i * inner, inner);
        w.products.push_back({&w.expert_matrices[3 * j + 2], &w.inputs[j], w.expert_out + i * width});
    }
    step.executor.multiply(w.products);
    std::fill_n(w.expert_sum, width, 0.0f);
    for (size_t j = 0; j < top_k; j++) {
        const float* y = w.expert_out + static_cast<int64_t>(j) * width;
        for (int64_t i = 0; i < width; i++) w.expert_sum[i] += w.router_weights[j] * y[i];
    }
}

}  // namespace

Result<void> moe_layer(Step& step, const MoeWeights& weights, int64_t layer, const float* x, float* out) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    choose_experts(step, weights, layer, x);
    if (const auto found = find_experts(step, weights); !found) return found;
    const float* z = x;
    if (weights.latent_down) {
        const Product down{&*weights.latent_down, &w.input, w.expert_input};
        step.executor.multiply({&down, 1});
        z = w.expert_input;
    }
    run_experts(step, z);
    if (!weights.latent_norm.empty()) {
        kernels::rms_norm(w.expert_sum, weights.latent_norm.data(), c.rms_norm_eps, c.expert_input_size(),
                          w.expert_sum);
    }
    if (weights.latent_up) {
        w.input.set(w.expert_sum, c.expert_input_size());
        const Product up{&*weights.latent_up, &w.input, out};
        step.executor.multiply({&up, 1});
    } else {
        std::copy_n(w.expert_sum, c.hidden_size, out);
    }
    if (weights.shared) {
        mlp_layer(step, *weights.shared, x, w.mlp_out);
        for (int64_t i = 0; i < c.hidden_size; i++) out[i] += w.mlp_out[i];
    }
    return {};
}

}  // namespace waste::engine
