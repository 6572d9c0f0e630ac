#include "engine/checkpoints.h"

#include <algorithm>

#include "engine/session_sections.h"
#include "engine/state.h"

namespace waste::engine {

int64_t Checkpoints::bytes(const ModelConfig& config) {
    const StateBytes state = state_bytes(config);
    return state.kda + state.conv + config.vocab_size * static_cast<int64_t>(sizeof(float));
}

Result<Checkpoints> Checkpoints::allocate(const ModelConfig& config, int most) {
    Checkpoints out;
    out.most_ = most;
    const StateBytes state = state_bytes(config);
    out.recurrent_floats_ = (state.kda + state.conv) / static_cast<int64_t>(sizeof(float));
    out.vocab_size_ = config.vocab_size;
    out.kda_layers_ = config.kda_layer_count();
    if (most == 0) return out;
    auto memory = Buffer::allocate(most * (out.recurrent_floats_ + out.vocab_size_), "checkpoints");
    if (!memory) return pass(memory);
    out.memory_ = std::move(*memory);
    return out;
}

std::span<const float> Checkpoints::recurrent(const Checkpoint& checkpoint) const {
    return {memory_.data() + offset(checkpoint.slot), static_cast<size_t>(recurrent_floats_)};
}

std::span<const float> Checkpoints::logits(const Checkpoint& checkpoint) const {
    return {memory_.data() + offset(checkpoint.slot) + recurrent_floats_,
            static_cast<size_t>(checkpoint.has_logits ? vocab_size_ : 0)};
}

int Checkpoints::free_slot() const {
    for (int slot = 0; slot < most_; slot++) {
        const auto has_it = [slot](const Checkpoint& kept) { return kept.slot == slot; };
        if (std::none_of(kept_.begin(), kept_.end(), has_it)) return slot;
    }
    return -1;
}

void Checkpoints::drop_least_useful(int64_t end) {
    // Saved tokens times the odds of going back to between this one and the next, which fall with the distance.
    constexpr double kTurnWeight = 8.0, kNear = 64.0;
    const auto usefulness = [&](size_t i) {
        const int64_t before = i == 0 ? 0 : kept_[i - 1].position;
        const double saved = static_cast<double>(kept_[i].position - before);
        const double weight = kept_[i].at_turn ? kTurnWeight : 1.0;
        return saved * weight / (static_cast<double>(end - kept_[i].position) + kNear);
    };
    size_t least = 0;
    for (size_t i = 1; i < kept_.size(); i++) {
        if (usefulness(i) < usefulness(least)) least = i;
    }
    kept_.erase(kept_.begin() + static_cast<std::ptrdiff_t>(least));
}

void Checkpoints::keep(int64_t position, bool at_turn, std::span<const float> recurrent,
                       std::span<const float> logits) {
    if (most_ == 0 || position == 0) return;
    if (!kept_.empty() && kept_.back().position == position) {
        Checkpoint& here = kept_.back();
        at_turn = here.at_turn = here.at_turn || at_turn;
        if (here.has_logits || logits.empty()) return;
        kept_.pop_back();  // to be taken again, with logits
    }
    if (static_cast<int>(kept_.size()) == most_) drop_least_useful(position);
    const int slot = free_slot();
    float* to = memory_.data() + offset(slot);
    std::copy(recurrent.begin(), recurrent.end(), to);
    std::copy(logits.begin(), logits.end(), to + recurrent_floats_);
    kept_.push_back({position, at_turn, !logits.empty(), slot, std::nullopt});
}

void Checkpoints::adopt(const Checkpoint& stored) {
    if (most_ == 0) return;
    if (static_cast<int>(kept_.size()) == most_) drop_least_useful(stored.position);
    kept_.push_back(stored);
    kept_.back().slot = -1;
}

const Checkpoint* Checkpoints::nearest(int64_t position, bool with_logits) const {
    for (size_t i = kept_.size(); i-- > 0;) {
        const Checkpoint& kept = kept_[i];
        if (kept.position < position || (kept.position == position && (kept.has_logits || !with_logits)))
            return &kept;
    }
    return nullptr;
}

Result<void> Checkpoints::restore(const Checkpoint& checkpoint, std::span<float> recurrent,
                                  std::span<float> logits) const {
    if (checkpoint.slot >= 0) {
        const auto state = this->recurrent(checkpoint);
        std::copy(state.begin(), state.end(), recurrent.begin());
        const auto last = this->logits(checkpoint);
        std::copy(last.begin(), last.end(), logits.begin());
        return {};
    }
    const auto& [file, index] = *checkpoint.stored;
    const int64_t copy = checkpoint_copy(index);
    const auto read = read_recurrent(*file, copy, kda_layers_, recurrent);
    if (!read || !checkpoint.has_logits) return read;
    return read_floats(*file, section_name(SectionKind::logits, 0, copy), logits);
}

void Checkpoints::forget_after(int64_t position) {
    while (!kept_.empty() && kept_.back().position > position) kept_.pop_back();
}

void Checkpoints::forget(int64_t position) {
    std::erase_if(kept_, [position](const Checkpoint& kept) { return kept.position == position; });
}

void Checkpoints::set_stored(const std::shared_ptr<const container::SectionFile>& file) {
    for (size_t i = 0; i < kept_.size(); i++) kept_[i].stored = {file, static_cast<uint32_t>(i)};
}

}  // namespace waste::engine
