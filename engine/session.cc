// What happens to a block of tokens: forward() is the whole model on a page.
#include "engine/session.h"

#include <fmt/format.h>

#include <algorithm>

#include "engine/layers/experts.h"

namespace waste::engine {

Session::Session(const Model& model, SequenceState state, Checkpoints checkpoints, Workspace workspace,
                 std::unique_ptr<Executor> executor, const SessionOptions& options)
    : model_(&model),
      state_(std::move(state)),
      checkpoints_(std::move(checkpoints)),
      checkpoint_interval_(options.checkpoint_interval),
      workspace_(std::move(workspace)),
      executor_(std::move(executor)),
      block_tokens_(options.shape().block_tokens) {
    history_.tokens.reserve(static_cast<size_t>(options.context_length));
    history_.chunked.reserve(static_cast<size_t>(options.context_length / kernels::kKdaChunk));
    if (!options.look_ahead || !model.experts().streams()) return;
    look_ahead_ = std::make_unique<LookAhead>(model.container().manifest().banks.size(),
                                              model.config().num_experts_per_token);
}

SessionShape SessionOptions::shape() const {
    // No block is longer than the context; the grid of chunks must still fit.
    const int64_t chunks = (context_length + kernels::kKdaChunk - 1) / kernels::kKdaChunk;
    return {std::min(block_tokens, chunks * kernels::kKdaChunk), context_length, threads, checkpoints};
}

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
    if (options.block_tokens < kernels::kKdaChunk || options.block_tokens > kMostBlockTokens ||
        options.block_tokens % kernels::kKdaChunk != 0) {
        return fail(ErrorKind::invalid, "block",
                    fmt::format("must be a multiple of {} up to {}, it is {}", kernels::kKdaChunk,
                                kMostBlockTokens, options.block_tokens));
    }
    if (!kernels::tier_supported(options.tier)) {
        return fail(ErrorKind::unsupported, "tier",
                    fmt::format("this CPU cannot run '{}'", kernels::tier_name(options.tier)));
    }
    if (options.checkpoints < 0 || options.checkpoints > kMostCheckpoints) {
        return fail(ErrorKind::invalid, "checkpoints",
                    fmt::format("must lie in 0..{}, it is {}", kMostCheckpoints, options.checkpoints));
    }
    if (options.checkpoint_interval < kernels::kKdaChunk ||
        options.checkpoint_interval % kernels::kKdaChunk != 0) {
        return fail(ErrorKind::invalid, "checkpoint interval",
                    fmt::format("must be a multiple of {}, it is {}", kernels::kKdaChunk,
                                options.checkpoint_interval));
    }
    auto state = SequenceState::allocate(config, options.context_length);
    if (!state) return pass(state);
    auto checkpoints = Checkpoints::allocate(config, options.checkpoints);
    if (!checkpoints) return pass(checkpoints);
    auto workspace = Workspace::allocate(config, options.shape());
    if (!workspace) return pass(workspace);
    return Session(
        model, std::move(*state), std::move(*checkpoints), std::move(*workspace),
        std::make_unique<Executor>(options.compute, options.tier, options.threads, options.binding), options);
}

Result<void> Session::check(std::span<const int32_t> ids) const {
    if (broken_) {
        return fail(ErrorKind::invalid, "session",
                    "an earlier error left it half-computed; go back to a checkpoint or start a new one");
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

int64_t Session::block_at_position() const {
    // Blocks end on the grid of chunks, so that their size does not decide which chunks are filled.
    return block_tokens_ - state_.position % kernels::kKdaChunk;
}

Result<void> Session::feed(std::span<const int32_t> ids, const OnToken& on_token, const OnBlock& on_block) {
    if (const auto ok = check(ids); !ok) return ok;
    while (!ids.empty()) {
        const size_t count = std::min(ids.size(), static_cast<size_t>(block_at_position()));
        const auto block = ids.first(count);
        const int64_t before = state_.position;
        if (const auto ok = forward(block, KdaForm::chunks, count == ids.size(), on_token); !ok) return ok;
        history_.append(block);
        keep_on_grid(before);
        ids = ids.subspan(count);
        if (on_block && !on_block()) break;
    }
    return {};
}

Result<void> Session::forward(std::span<const int32_t> ids, KdaForm form, bool last_block,
                              const OnToken& on_token) {
    broken_ = true;  // until all layers have taken the block in
    logits_ = nullptr;
    const ModelConfig& c = model_->config();
    const ModelWeights& weights = model_->weights();
    const auto tokens = static_cast<int64_t>(ids.size());
    // A block of several tokens touches most experts, and all its reads overlap already.
    LookAhead* const ahead = tokens == 1 ? look_ahead_.get() : nullptr;
    const auto trunk_use = model_->trunk().use();
    Step step{c,
              model_->container(),
              model_->experts(),
              ahead,
              *executor_,
              workspace_,
              state_.position,
              tokens,
              form,
              trace_,
              profile_};
    for (int64_t t = 0; t < tokens; t++) {
        const Timed timed(profile_, Component::residual);
        const std::span<float> row(workspace_.stream + t * c.hidden_size, static_cast<size_t>(c.hidden_size));
        const int32_t id = ids[static_cast<size_t>(t)];
        if (const auto ok = model_->container().read_row(weights.embedding, id, row); !ok) return ok;
    }
    int64_t snapshots = 0;
    for (int64_t layer = 0; layer < c.num_hidden_layers; layer++) {
        if (on_layer_) on_layer_(layer, c.num_hidden_layers, tokens);
        if (const auto ok = model_->trunk().enter(layer); !ok) return ok;
        if (const auto ok = run_layer(step, layer, snapshots); !ok) return ok;
    }
    if (on_token || last_block || trace_) {
        if (const auto ok = model_->trunk().enter(c.num_hidden_layers); !ok) return ok;
        run_head(step, snapshots, on_token ? 0 : tokens - 1, on_token);
    }
    state_.position += tokens;
    broken_ = false;
    return {};
}

void Session::mix_and_norm(Step& step, const std::vector<float>& mix_weight, int64_t snapshots,
                           std::span<const float> norm_weight, int64_t begin, float* out) {
    const Timed timed(profile_, Component::residual);
    const ModelConfig& c = step.config;
    const int64_t hidden = c.hidden_size;
    const kernels::KernelSet& kernels = executor_->kernels();
    Workspace& w = workspace_;
    executor_->each_token(step.tokens - begin, [&](int64_t i) {
        const int64_t t = begin + i;
        const float* input = w.stream + t * hidden;
        if (!mix_weight.empty()) {
            const float* candidates[kernels::kMaxAttnResCandidates];
            for (int64_t s = 0; s < snapshots; s++) {
                candidates[s] = w.snapshots + (s * block_tokens_ + t) * hidden;
            }
            candidates[snapshots] = input;
            input = w.mixed + t * hidden;
            kernels.attn_res->mix(candidates, snapshots + 1, mix_weight.data(), c.rms_norm_eps, hidden,
                                  w.mixed + t * hidden);
        }
        kernels.norm->rms_norm(input, norm_weight.data(), c.rms_norm_eps, hidden, out + t * hidden);
    });
}

Result<void> Session::run_layer(Step& step, int64_t layer, int64_t& snapshots) {
    const ModelConfig& c = step.config;
    const LayerWeights& weights = model_->weights().layers[static_cast<size_t>(layer)];
    Workspace& w = step.workspace;
    const int64_t hidden = c.hidden_size;
    const auto trace = [&](TracePoint point, const float* values) {
        if (!step.trace) return;
        for (int64_t t = 0; t < step.tokens; t++) {
            step.trace->on_vector(point, layer, step.position + t,
                                  {values + t * hidden, static_cast<size_t>(hidden)});
        }
    };
    const auto add_to_stream = [&] {
        const Timed timed(profile_, Component::residual);
        executor_->each_token(step.tokens, [&](int64_t t) {
            executor_->kernels().activation->add(w.sublayer + t * hidden, hidden, w.stream + t * hidden);
        });
    };

    mix_and_norm(step, weights.attn_mix, snapshots, weights.input_norm, 0, w.normed);
    // At a block's first layer the stream is banked, after it was mixed, and the sum starts anew.
    const bool new_block = c.attn_res_block_size > 0 && layer % c.attn_res_block_size == 0;
    if (new_block) {
        std::copy_n(w.stream, step.tokens * hidden, w.snapshots + snapshots++ * block_tokens_ * hidden);
    }
    trace(TracePoint::attn_in, w.normed);
    const auto index = static_cast<size_t>(layer);
    if (weights.kda) {
        kda_layer(step, *weights.kda, state_.kda[index], w.normed, w.sublayer);
    } else {
        mla_layer(step, *weights.mla, state_.mla[index], w.normed, w.sublayer);
    }
    trace(TracePoint::attn_out, w.sublayer);
    if (new_block) {
        std::copy_n(w.sublayer, step.tokens * hidden, w.stream);
    } else {
        add_to_stream();
    }

    mix_and_norm(step, weights.mlp_mix, snapshots, weights.post_attention_norm, 0, w.normed);
    trace(TracePoint::ffn_in, w.normed);
    if (weights.mlp) {
        mlp_layer(step, *weights.mlp, w.normed, w.sublayer);
    } else {
        route(step, *weights.moe, layer, w.normed);
        RoutedExperts experts(step, weights.moe->bank);
        if (step.look_ahead) guess_next(step, layer + 1, snapshots, Guess::early);
        if (const auto ok = moe_layer(step, *weights.moe, experts, w.normed, w.sublayer); !ok) return ok;
    }
    trace(TracePoint::ffn_out, w.sublayer);
    add_to_stream();
    trace(TracePoint::hidden, w.stream);
    if (step.look_ahead) guess_next(step, layer + 1, snapshots, Guess::late);
    return {};
}

void Session::guess_next(Step& step, int64_t layer, int64_t snapshots, Guess when) {
    if (layer >= step.config.num_hidden_layers || !step.config.is_moe(layer)) return;
    if (!model_->trunk().holds(layer)) return;
    const LayerWeights& weights = model_->weights().layers[static_cast<size_t>(layer)];
    if (!step.look_ahead->worth_guessing(weights.moe->bank)) return;
    float* likely = workspace_.sublayer;  // free until the layer's output
    mix_and_norm(step, weights.mlp_mix, snapshots, weights.post_attention_norm, 0, likely);
    guess_experts(step, *weights.moe, when, likely);
}

void Session::run_head(Step& step, int64_t snapshots, int64_t begin, const OnToken& on_token) {
    const ModelConfig& c = step.config;
    const ModelWeights& weights = model_->weights();
    Workspace& w = workspace_;
    mix_and_norm(step, weights.output_mix, snapshots, weights.norm, begin, w.normed);
    for (; begin < step.tokens; begin += kHeadTile) {
        const int64_t tokens = std::min(kHeadTile, step.tokens - begin);
        const float* normed = w.normed + begin * c.hidden_size;
        {
            const Timed timed(profile_, Component::head);
            w.input.set(normed, c.hidden_size, c.hidden_size, tokens);
            const Product head{&weights.lm_head, &w.input, w.logits, c.vocab_size};
            executor_->multiply({&head, 1});
        }
        logits_ = w.logits + (tokens - 1) * c.vocab_size;
        for (int64_t t = 0; t < tokens; t++) {
            const int64_t position = step.position + begin + t;
            if (trace_) {
                trace_->on_vector(TracePoint::final, c.num_hidden_layers, position,
                                  {normed + t * c.hidden_size, static_cast<size_t>(c.hidden_size)});
            }
            if (on_token) {
                on_token(position, {w.logits + t * c.vocab_size, static_cast<size_t>(c.vocab_size)});
            }
        }
    }
}

}  // namespace waste::engine
