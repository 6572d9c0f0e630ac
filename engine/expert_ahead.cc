// What the expert store reads before a router has chosen it: guesses at the next layer's experts, and those of a warm
// start.
#include <algorithm>
#include <numeric>

#include "engine/expert_store.h"

namespace waste::engine {
namespace {

using container::ReadState;

}  // namespace

/// Takes back an expected read that has not begun, as if it had never been wanted. False where it has.
bool ExpertStore::withdraw(int32_t index) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    if (slot.pins > 1) return false;  // another session wants it too
    container::DriveRead* const read = &slot.read;
    reader_->withdraw({&read, 1});
    if (read->state.load(std::memory_order_relaxed) != ReadState::idle) return false;
    ExpertCounters& counters = counters_[static_cast<size_t>(slot.key / experts_)];
    counters.ahead_reads--;
    counters.bytes -= read->length;
    slot_of_[static_cast<size_t>(slot.key)] = -1;
    slot.expected = false;
    slot.key = -1;
    // What was there still is, unless another slot has it by now.
    if (slot.former >= 0 && slot_of_[static_cast<size_t>(slot.former)] < 0) {
        assign(index, slot.former);
        read->state.store(ReadState::done, std::memory_order_relaxed);
    }
    unpin(index);
    return true;
}

void ExpertStore::withdraw_expected() {
    size_t begun = 0;
    for (const int32_t slot : expected_) {
        if (!withdraw(slot)) expected_[begun++] = slot;
    }
    expected_.resize(begun);
}

void ExpertStore::drop_expectations(size_t bank) {
    if (expected_.empty() || expected_bank_ != bank) return;
    withdraw_expected();
    for (const int32_t slot : expected_) unpin(slot);
    expected_.clear();
}

void ExpertStore::take_back_expected() {
    const std::lock_guard lock(mutex_);
    withdraw_expected();
}

void ExpertStore::keep_absent(size_t bank, std::span<int32_t> experts) const {
    const std::lock_guard lock(mutex_);
    for (int32_t& expert : experts) {
        if (slot_of_[static_cast<size_t>(key_of(bank, expert))] >= 0) expert = -1;
    }
}

void ExpertStore::expect(size_t bank, std::span<const int32_t> experts) {
    if (!reader_) return;
    const std::lock_guard lock(mutex_);
    if (bank != expected_bank_) drop_expectations(expected_bank_);
    expected_bank_ = bank;
    find_victims(slots_.size());
    auto free = static_cast<int64_t>(victims_.size());
    for (const int32_t expert : experts) {
        if (expected_.size() == expected_.capacity() || free <= least_slots_) break;
        if (slot_of_[static_cast<size_t>(key_of(bank, expert))] >= 0) continue;
        const int32_t slot = take_victim();
        fill(slot, bank, expert, false);
        slots_[static_cast<size_t>(slot)].pins++;
        expected_.push_back(slot);
        counters_[bank].ahead_reads++;
        free--;
    }
    reader_->submit_spare(started_);
    started_.clear();
}

void ExpertStore::warm(std::span<const uint32_t> uses, std::span<const int64_t> keys) {
    if (!reader_ || uses.size() != uses_.size()) return;
    const std::lock_guard lock(mutex_);
    const double sum = std::accumulate(uses.begin(), uses.end(), 0.0);
    if (sum == 0) return;
    // A layer's chances add up to top_k, a token's choice.
    const double a_token = static_cast<double>(counters_.size()) * static_cast<double>(top_k_);
    std::vector<float> chances(uses.size());
    std::transform(uses.begin(), uses.end(), chances.begin(),
                   [&](uint32_t count) { return static_cast<float>(count / sum * a_token); });
    replacement_->expect(chances);
    find_victims(slots_.size());
    // What is read now cannot be evicted before it has landed, and there must be room for what is asked for.
    const auto next_is_empty = [&] { return slots_[static_cast<size_t>(victims_.back().slot)].key < 0; };
    while (!keys.empty() && static_cast<int64_t>(victims_.size()) > least_slots_ && next_is_empty()) {
        const int64_t key = keys.front();
        keys = keys.subspan(1);
        if (slot_of_[static_cast<size_t>(key)] >= 0) continue;
        fill(take_victim(), static_cast<size_t>(key / experts_), static_cast<int32_t>(key % experts_), false);
        slots_[static_cast<size_t>(slot_of_[static_cast<size_t>(key)])].expected = false;
    }
    submit_started();
}

}  // namespace waste::engine
