// Mixture of experts: the router chooses, the chosen experts run on the (latent) input, their weighted sum is
// normed and projected back, the shared experts are added.
#include <algorithm>

#include "engine/layers/experts.h"
#include "kernels/router.h"

namespace waste::engine {
namespace {

/// From the router's logits: the experts of a row of the workspace, with their weights.
void choose_experts(const Step& step, const MoeWeights& weights, int64_t row) {
    const ModelConfig& c = step.config;
    const Workspace& w = step.workspace;
    const int64_t experts = c.num_experts, top_k = c.num_experts_per_token;
    const kernels::RouterRule rule{experts, top_k, c.moe_renormalize, c.routed_scaling_factor};
    float* scores = w.router_scores + row * experts;
    step.executor.kernels().activation->sigmoid(scores, experts, scores);
    w.router_margins[row] =
        kernels::route(rule, scores, weights.bias.data(), w.router_choice + row * experts,
                       step.workspace.expert_ids.data() + row * top_k, w.router_weights + row * top_k);
}

void trace_router(const Step& step, int64_t layer) {
    const Workspace& w = step.workspace;
    const auto top_k = static_cast<size_t>(step.config.num_experts_per_token);
    const auto experts = static_cast<size_t>(step.config.num_experts);
    for (int64_t t = 0; t < step.tokens; t++) {
        const size_t at = static_cast<size_t>(t) * top_k;
        step.trace->on_router(layer, step.position + t, std::span(w.expert_ids).subspan(at, top_k),
                              {w.router_weights + at, top_k}, w.router_margins[t],
                              {w.router_scores + static_cast<size_t>(t) * experts, experts});
    }
}

std::span<const int32_t> chosen(const Step& step, size_t row) {
    const auto top_k = static_cast<size_t>(step.config.num_experts_per_token);
    return std::span(step.workspace.expert_ids).subspan(row * top_k, top_k);
}

void teach_replacement(const Step& step, size_t bank) {
    const Workspace& w = step.workspace;
    const auto experts = static_cast<size_t>(step.tokens * step.config.num_experts);
    const auto chosen = static_cast<size_t>(step.tokens * step.config.num_experts_per_token);
    step.experts.learn(bank, step.tokens, {w.router_scores, experts}, std::span(w.expert_ids).first(chosen));
}

/// expert_sum[t] = sum_j weight_j expert_out_j in the router's order, normed where the config says so.
void sum_experts(Step& step, const MoeWeights& weights) {
    const ModelConfig& c = step.config;
    const kernels::KernelSet& kernels = step.executor.kernels();
    Workspace& w = step.workspace;
    const int64_t width = c.expert_input_size(), top_k = c.num_experts_per_token;
    step.executor.each_token(step.tokens, [&](int64_t t) {
        float* sum = w.expert_sum + t * width;
        std::fill_n(sum, width, 0.0f);
        for (int64_t pair = t * top_k; pair < (t + 1) * top_k; pair++) {
            const float* y = w.expert_out + w.pair_row[static_cast<size_t>(pair)] * width;
            kernels.activation->add_scaled(y, w.router_weights[pair], width, sum);
        }
        if (!weights.latent_norm.empty()) {
            kernels.norm->rms_norm(sum, weights.latent_norm.data(), c.rms_norm_eps, width, sum);
        }
    });
}

}  // namespace

void route(Step& step, const MoeWeights& weights, int64_t layer, const float* x) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    {
        const Timed timed(step.profile, Component::router);
        w.input.set(x, c.hidden_size, c.hidden_size, step.tokens);
        const Matrix* latent_down = weights.latent_down ? &*weights.latent_down : nullptr;
        const Product products[] = {{&weights.router, &w.input, w.router_scores, c.num_experts},
                                    {latent_down, &w.input, w.expert_input, c.expert_input_size()}};
        step.executor.multiply(std::span(products).first(latent_down ? 2 : 1));
        step.executor.each_token(step.tokens, [&](int64_t t) { choose_experts(step, weights, t); });
    }
    if (step.trace) trace_router(step, layer);
    teach_replacement(step, weights.bank);
    if (step.look_ahead) step.look_ahead->settle(weights.bank, chosen(step, 0), step.experts);
}

void guess_experts(Step& step, const MoeWeights& weights, Guess when, const float* x) {
    const Timed timed(step.profile, Component::router);
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    // A block has room for 64 tokens at least; the first row holds the running layer's choice.
    constexpr int64_t kRow = 1;
    w.input.set(x, c.hidden_size, c.hidden_size, 1);
    const Product router{&weights.router, &w.input, w.router_scores + kRow * c.num_experts, c.num_experts};
    step.executor.multiply({&router, 1});
    choose_experts(step, weights, kRow);
    step.look_ahead->begin(weights.bank, when, chosen(step, kRow), step.experts);
}

Result<void> moe_layer(Step& step, const MoeWeights& weights, RoutedExperts& experts, const float* x,
                       float* out) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    // While the missing ones are read.
    if (weights.shared) mlp_layer(step, *weights.shared, x, w.mlp_out);
    {
        const Timed timed(step.profile, Component::experts);
        if (const auto ok = experts.run(weights.latent_down ? w.expert_input : x); !ok) return ok;
        sum_experts(step, weights);
        if (weights.latent_up) {
            w.input.set(w.expert_sum, c.expert_input_size(), c.expert_input_size(), step.tokens);
            const Product up{&*weights.latent_up, &w.input, out, c.hidden_size};
            step.executor.multiply({&up, 1});
        } else {
            std::copy_n(w.expert_sum, step.tokens * c.hidden_size, out);
        }
    }
    if (weights.shared) {
        step.executor.each_token(step.tokens, [&](int64_t t) {
            step.executor.kernels().activation->add(w.mlp_out + t * c.hidden_size, c.hidden_size,
                                                    out + t * c.hidden_size);
        });
    }
    return {};
}

}  // namespace waste::engine
