// What a lease does, and the counters: the part of the expert store that its users hold in their hands.
#include <fmt/format.h>

#include <chrono>
#include <utility>

#include "engine/expert_store.h"

namespace waste::engine {
namespace {

using container::ReadState;
using Clock = std::chrono::steady_clock;

}  // namespace

ExpertCounters& ExpertCounters::operator+=(const ExpertCounters& other) {
    uses += other.uses;
    hits += other.hits;
    joined += other.joined;
    misses += other.misses;
    bytes += other.bytes;
    ahead_reads += other.ahead_reads;
    ahead_used += other.ahead_used;
    wait_nanoseconds += other.wait_nanoseconds;
    return *this;
}

ExpertCounters ExpertCounters::operator-(const ExpertCounters& other) const {
    return {uses - other.uses,
            hits - other.hits,
            joined - other.joined,
            misses - other.misses,
            bytes - other.bytes,
            ahead_reads - other.ahead_reads,
            ahead_used - other.ahead_used,
            wait_nanoseconds - other.wait_nanoseconds};
}

ExpertStore::Lease::Lease(Lease&& other) noexcept {
    *this = std::move(other);
}

ExpertStore::Lease& ExpertStore::Lease::operator=(Lease&& other) noexcept {
    if (this == &other) return *this;
    release();
    store_ = std::exchange(other.store_, nullptr);
    bank_ = other.bank_;
    expert_ = other.expert_;
    slot_ = other.slot_;
    return *this;
}

bool ExpertStore::Lease::landed() const {
    if (slot_ < 0) return true;
    return store_->slots_[static_cast<size_t>(slot_)].read.state.load(std::memory_order_acquire) !=
           ReadState::pending;
}

Result<container::ExpertView> ExpertStore::Lease::view() const {
    if (slot_ < 0) return store_->container_->expert(bank_, expert_);
    const container::DriveRead& read = store_->slots_[static_cast<size_t>(slot_)].read;
    if (!landed()) {
        const auto start = Clock::now();
        store_->reader_->wait(read);
        store_->count_wait(bank_, Clock::now() - start);
    }
    if (read.state.load(std::memory_order_acquire) == ReadState::failed) {
        const container::BankEntry& entry = store_->container_->manifest().banks[bank_];
        return fail(read.error->kind, fmt::format("layer {} expert {}", entry.layer, expert_),
                    read.error->text());
    }
    return store_->container_->expert_at(bank_, {read.to, read.length});
}

void ExpertStore::Lease::release() {
    ExpertStore* store = std::exchange(store_, nullptr);
    if (!store || slot_ < 0) return;
    const std::lock_guard lock(store->mutex_);
    store->unpin(slot_);
}

}  // namespace waste::engine
