// Going back in a sequence, and what makes it possible: turns, seeds, checkpoints.
#include <fmt/format.h>

#include <algorithm>

#include "engine/layers/step.h"
#include "engine/session.h"

namespace waste::engine {

std::span<const float> Session::logits() const {
    return {logits_, static_cast<size_t>(logits_ != nullptr ? model_->config().vocab_size : 0)};
}

void Session::clear() {
    state_.clear();
    history_.truncate(0);
    history_.seeds.clear();
    checkpoints_.forget_after(0);
    logits_ = nullptr;
    file_.reset();
    unchanged_ = 0;
    broken_ = false;
}

void Session::begin_turn(TurnRole role) {
    history_.turns.push_back({role, position()});
    if (!broken_) checkpoints_.keep(position(), true, state_.recurrent(), logits());
}

void Session::keep_checkpoint() {
    if (!broken_) checkpoints_.keep(position(), false, state_.recurrent(), logits());
}

void Session::start_anew(std::vector<Turn> turns, const SamplerOptions& sampler) {
    sampler_ = sampler;
    history_.turns = std::move(turns);
    history_.seeds = {{0, sampler.seed}};
    file_.reset();
    unchanged_ = 0;
}

void Session::set_sampler(const SamplerOptions& options) {
    sampler_ = options;
    history_.set_seed(options.seed);
}

SamplerOptions Session::sampler() const {
    SamplerOptions options = sampler_;
    options.seed = history_.seed();
    return options;
}

void Session::keep_on_grid(int64_t position_before) {
    const bool passed = position() / checkpoint_interval_ != position_before / checkpoint_interval_;
    if (passed && position() % kernels::kKdaChunk == 0) keep_checkpoint();
}

Result<Rewound> Session::rewind(int64_t position, const OnBlock& on_block, bool with_logits) {
    if (position < 0 || position > this->position()) {
        return fail(ErrorKind::invalid, "rewind",
                    fmt::format("position {} does not lie in 0..{}", position, this->position()));
    }
    Rewound out;
    with_logits = with_logits && position > 0;
    if (position == this->position() && !broken_ && (logits_ != nullptr || !with_logits)) {
        history_.truncate(position);  // a turn without tokens ends too
        return out;
    }
    History history = history_;
    history.truncate(position);
    go_back(position, with_logits, out.warning);
    const auto ok = evaluate_again(history, on_block, out.evaluated);
    if (!ok) return pass(ok);  // what it was to be is still known: it may be tried again
    history_ = std::move(history);
    history_.truncate(state_.position);
    checkpoints_.forget_after(state_.position);
    return out;
}

int64_t Session::recover() {
    std::string warning;
    if (broken_) go_back(position(), false, warning);
    history_.truncate(state_.position);
    return position();
}

void Session::go_back(int64_t position, bool with_logits, std::string& warning) {
    const std::span logits(workspace_.logits, static_cast<size_t>(model_->config().vocab_size));
    broken_ = true;  // until it stands whole somewhere
    logits_ = nullptr;
    while (const Checkpoint* checkpoint = checkpoints_.nearest(position, with_logits)) {
        const auto restored = checkpoints_.restore(*checkpoint, state_.recurrent(), logits);
        if (restored) {
            state_.position = checkpoint->position;
            if (checkpoint->has_logits) logits_ = workspace_.logits;
            unchanged_ = std::min(unchanged_, state_.position);
            broken_ = false;
            return;
        }
        warning = restored.error().text();
        checkpoints_.forget(checkpoint->position);
    }
    state_.clear();
    unchanged_ = 0;
    broken_ = false;
}

Result<void> Session::evaluate_again(const History& history, const OnBlock& on_block, int64_t& evaluated) {
    const int64_t end = history.position();
    const auto form_at = [&](int64_t position) {
        const auto chunk = static_cast<size_t>(position / kernels::kKdaChunk);
        const bool chunked = chunk < history.chunked.size() && history.chunked[chunk] != 0;
        return chunked ? KdaForm::chunks : KdaForm::tokens;
    };
    while (state_.position < end) {
        const int64_t begin = state_.position;
        const int64_t block_end = std::min(end, begin + block_at_position());
        const KdaForm form = form_at(begin);
        int64_t next = begin;
        while (next < block_end && form_at(next) == form) {
            next = std::min(block_end, next + kernels::kKdaChunk - next % kernels::kKdaChunk);
        }
        const auto tokens =
            std::span(history.tokens).subspan(static_cast<size_t>(begin), static_cast<size_t>(next - begin));
        if (const auto ok = forward(tokens, form, next == end, nullptr); !ok) return ok;
        evaluated += next - begin;
        if (on_block && !on_block()) return {};
    }
    return {};
}

}  // namespace waste::engine
