// What happens to one token: forward() is the whole model on a page.
#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/layers/step.h"
#include "kernels/attn_res.h"
#include "kernels/norm.h"

namespace waste::engine {

Session::Session(const Model& model, SequenceState state, Workspace workspace,
                 std::unique_ptr<Executor> executor)
    : model_(&model),
      state_(std::move(state)),
      workspace_(std::move(workspace)),
      executor_(std::move(executor)) {}

Result<Session> Session::create(const Model& model, const SessionOptions& options) {
    const ModelConfig& config = model.config();
    if (options.context_length < 1 || options.context_length > config.max_context) {
        return fail(ErrorKind::invalid, "context length",
                    fmt::format("must lie in 1..{}, it is {}", config.max_context, options.context_length));
    }
    if (options.threads < 1) {
        return fail(ErrorKind::invalid, "threads",
                    fmt::format("must be at least 1, it is {}", options.threads));
    }
    if (!kernels::tier_supported(options.tier)) {
        return fail(ErrorKind::unsupported, "tier",
                    fmt::format("this CPU cannot run '{}'", kernels::tier_name(options.tier)));
    }
    auto state = SequenceState::allocate(config, options.context_length);
    if (!state) return pass(state);
    auto workspace = Workspace::allocate(config);
    if (!workspace) return pass(workspace);
    return Session(model, std::move(*state), std::move(*workspace),
                   std::make_unique<Executor>(options.compute, options.tier, options.threads));
}

std::span<const float> Session::logits() const {
    return {workspace_.logits, static_cast<size_t>(model_->config().vocab_size)};
}

void Session::clear() {
    state_.clear();
    broken_ = false;
}

Result<void> Session::check(std::span<const int32_t> ids) const {
    if (broken_) {
        return fail(ErrorKind::invalid, "session", "an earlier error left it half-computed; start a new one");
    }
    const int64_t vocab = model_->config().vocab_size;
    for (size_t i = 0; i < ids.size(); i++) {
        if (ids[i] < 0 || ids[i] >= vocab) {
            return fail(ErrorKind::invalid, fmt::format("token {}", i),
                        fmt::format("id {} is outside the vocabulary of {}", ids[i], vocab));
        }
    }
    if (state_.position + static_cast<int64_t>(ids.size()) > state_.context_length) {
        return fail(ErrorKind::capacity, "context",
                    fmt::format("{} tokens after {} exceed the context of {}; choose a larger --ctx",
                                ids.size(), state_.position, state_.context_length));
    }
    return {};
}

Result<void> Session::feed(std::span<const int32_t> ids, const OnToken& on_token) {
    if (const auto ok = check(ids); !ok) return ok;
    for (size_t i = 0; i < ids.size(); i++) {
        const bool want_logits = on_token || i + 1 == ids.size();
        if (const auto ok = forward(ids[i], want_logits); !ok) {
            broken_ = true;
            return ok;
        }
        state_.position++;
        if (on_token && !on_token(state_.position - 1, logits())) break;
    }
    return {};
}

const float* Session::mix(const std::vector<float>& weight, int64_t snapshots) {
    if (weight.empty()) return workspace_.stream;
    const ModelConfig& c = model_->config();
    const float* candidates[kernels::kMaxAttnResCandidates];
    for (int64_t i = 0; i < snapshots; i++) candidates[i] = workspace_.snapshots + i * c.hidden_size;
    candidates[snapshots] = workspace_.stream;
    kernels::attn_res_mix(candidates, snapshots + 1, weight.data(), c.rms_norm_eps, c.hidden_size,
                          workspace_.mixed);
    return workspace_.mixed;
}

Result<void> Session::forward(int32_t id, bool want_logits) {
    const ModelConfig& c = model_->config();
    const ModelWeights& weights = model_->weights();
    Workspace& w = workspace_;
    Step step{c, model_->container(), *executor_, w, state_.position, trace_};

    const std::span<float> stream(w.stream, static_cast<size_t>(c.hidden_size));
    if (const auto ok = model_->container().read_row(weights.embedding, id, stream); !ok) return ok;
    int64_t snapshots = 0;
    for (int64_t layer = 0; layer < c.num_hidden_layers; layer++) {
        if (const auto ok = run_layer(step, layer, snapshots); !ok) return ok;
    }
    if (!want_logits && !trace_) return {};
    kernels::rms_norm(mix(weights.output_mix, snapshots), weights.norm.data(), c.rms_norm_eps, c.hidden_size,
                      w.normed);
    if (trace_) trace_->on_vector(TracePoint::final, c.num_hidden_layers, {w.normed, stream.size()});
    w.input.set(w.normed, c.hidden_size);
    const Product head{&weights.lm_head, &w.input, w.logits};
    executor_->multiply({&head, 1});
    return {};
}

Result<void> Session::run_layer(Step& step, int64_t layer, int64_t& snapshots) {
    const ModelConfig& c = step.config;
    const LayerWeights& weights = model_->weights().layers[static_cast<size_t>(layer)];
    Workspace& w = step.workspace;
    const auto hidden = static_cast<size_t>(c.hidden_size);
    const auto trace = [&](TracePoint point, const float* values) {
        if (step.trace) step.trace->on_vector(point, layer, {values, hidden});
    };

    kernels::rms_norm(mix(weights.attn_mix, snapshots), weights.input_norm.data(), c.rms_norm_eps,
                      c.hidden_size, w.normed);
    // At a block's first layer the stream is banked, after it was mixed, and the sum starts anew.
    const bool new_block = c.attn_res_block_size > 0 && layer % c.attn_res_block_size == 0;
    if (new_block) std::copy_n(w.stream, hidden, w.snapshots + snapshots++ * c.hidden_size);
    trace(TracePoint::attn_in, w.normed);
    const auto index = static_cast<size_t>(layer);
    if (weights.kda) {
        kda_layer(step, *weights.kda, state_.kda[index], w.normed, w.sublayer);
    } else {
        mla_layer(step, *weights.mla, state_.mla[index], w.normed, w.sublayer);
    }
    trace(TracePoint::attn_out, w.sublayer);
    if (new_block) {
        std::copy_n(w.sublayer, hidden, w.stream);
    } else {
        for (size_t i = 0; i < hidden; i++) w.stream[i] += w.sublayer[i];
    }

    kernels::rms_norm(mix(weights.mlp_mix, snapshots), weights.post_attention_norm.data(), c.rms_norm_eps,
                      c.hidden_size, w.normed);
    trace(TracePoint::ffn_in, w.normed);
    if (weights.mlp) {
        mlp_layer(step, *weights.mlp, w.normed, w.sublayer);
    } else if (const auto ok = moe_layer(step, *weights.moe, layer, w.normed, w.sublayer); !ok) {
        return ok;
    }
    trace(TracePoint::ffn_out, w.sublayer);
    for (size_t i = 0; i < hidden; i++) w.stream[i] += w.sublayer[i];
    trace(TracePoint::hidden, w.stream);
    return {};
}

}  // namespace waste::engine
