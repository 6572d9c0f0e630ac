#include "engine/expert_store.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <utility>

namespace waste::engine {
namespace {

using container::ReadState;
using Clock = std::chrono::steady_clock;

}  // namespace

ExpertStore::ExpertStore(const container::Container& container) : container_(&container) {}
ExpertStore::~ExpertStore() = default;

Result<std::unique_ptr<ExpertStore>> ExpertStore::open(const container::Container& container, int64_t top_k,
                                                       const ExpertStoreOptions& options,
                                                       container::DriveReader* reader) {
    std::unique_ptr<ExpertStore> store(new ExpertStore(container));
    const auto& banks = container.manifest().banks;
    store->counters_.resize(banks.size());
    if (options.slots == 0 || banks.empty()) return store;
    store->reader_ = reader;
    if (const auto ok = store->allocate(top_k, options); !ok) return pass(ok);
    return store;
}

Result<void> ExpertStore::allocate(int64_t top_k, const ExpertStoreOptions& options) {
    const auto& banks = container_->manifest().banks;
    for (const container::BankEntry& bank : banks) {
        experts_ = std::max(experts_, bank.shape.experts);
        slot_bytes_ = std::max(slot_bytes_, bank.shape.record_bytes());
    }
    const int64_t records = experts_ * static_cast<int64_t>(banks.size());
    top_k_ = top_k;
    least_slots_ = std::min(2 * top_k, records);
    const int64_t slots = std::min(options.slots, records);
    if (slots < least_slots_ || slots > std::numeric_limits<int32_t>::max()) {
        return fail(ErrorKind::invalid, "expert slots",
                    fmt::format("must be at least {}, two layers' choice of experts; {} were asked for",
                                least_slots_, slots));
    }
    uint64_t bytes = 0;
    auto memory = __builtin_mul_overflow(slot_bytes_, static_cast<uint64_t>(slots), &bytes)
                      ? std::nullopt
                      : container::SystemMemory::map(bytes);
    if (!memory) {
        return fail(ErrorKind::capacity, "expert cache",
                    fmt::format("not enough memory for {} slots of {} bytes; try a smaller --budget", slots,
                                slot_bytes_));
    }
    arena_ = std::move(*memory);
    verify_ = options.verify;
    replacement_ = make_replacement(options.policy, static_cast<int64_t>(banks.size()), experts_);
    slot_of_.assign(static_cast<size_t>(records), -1);
    uses_.assign(static_cast<size_t>(records), 0);
    slots_ = std::vector<Slot>(static_cast<size_t>(slots));
    usable_slots_ = slots;
    started_.reserve(slots_.size());
    victims_.reserve(slots_.size());
    expected_.reserve(static_cast<size_t>(top_k));
    return {};
}

std::string ExpertStore::description() const {
    if (!reader_) return "mapped";
    return fmt::format("{} slots, {}", slots_.size(), reader_->description());
}

int64_t ExpertStore::usable_slots() const {
    const std::lock_guard lock(mutex_);
    return usable_slots_;
}

int64_t ExpertStore::key_of(size_t bank, int32_t expert) const {
    return static_cast<int64_t>(bank) * experts_ + expert;
}

std::span<std::byte> ExpertStore::memory_of(int32_t slot) const {
    return {arena_.data() + static_cast<size_t>(slot) * slot_bytes_, slot_bytes_};
}

size_t ExpertStore::acquire(size_t bank, std::span<const int32_t> experts, std::span<Lease> leases,
                            bool at_least_one) {
    if (!reader_) {
        container_->prefetch(bank, experts);
        for (size_t i = 0; i < experts.size(); i++) leases[i] = Lease(this, bank, experts[i], -1);
        return experts.size();
    }
    std::unique_lock lock(mutex_);
    for (const int32_t expert : experts) {
        const int32_t slot = slot_of_[static_cast<size_t>(key_of(bank, expert))];
        if (slot >= 0) forget_if_failed(slots_[static_cast<size_t>(slot)]);
    }
    // From the first that is missing on: what is here stands before it and has its lease by then.
    const auto missing = std::find_if(experts.begin(), experts.end(), [&](int32_t expert) {
        return slot_of_[static_cast<size_t>(key_of(bank, expert))] < 0;
    });
    bool searched = false;
    size_t count = 0;
    while (count < experts.size()) {
        if (!searched && experts.begin() + static_cast<std::ptrdiff_t>(count) == missing) {
            find_victims(static_cast<size_t>(experts.end() - missing));
            searched = true;
        }
        auto found = lease(bank, experts[count]);
        if (!found && count == 0 && at_least_one) {
            wait_for_a_slot(lock);
            searched = false;
            continue;
        }
        if (!found) break;
        leases[count++] = std::move(*found);
    }
    submit_started();
    return count;
}

std::optional<ExpertStore::Lease> ExpertStore::lease(size_t bank, int32_t expert) {
    const int64_t key = key_of(bank, expert);
    ExpertCounters& counters = counters_[bank];
    int32_t slot = slot_of_[static_cast<size_t>(key)];
    if (slot < 0) {
        slot = take_victim();
        if (slot < 0) return std::nullopt;
        fill(slot, bank, expert, true);
        counters.misses++;
    } else {
        Slot& found = slots_[static_cast<size_t>(slot)];
        const bool here = found.read.state.load(std::memory_order_relaxed) != ReadState::pending;
        if (!here) reader_->hurry(found.read);
        (here ? counters.hits : counters.joined)++;
        if (found.expected) counters.ahead_used++;
        found.expected = false;
    }
    counters.uses++;
    slots_[static_cast<size_t>(slot)].pins++;
    return Lease(this, bank, expert, slot);
}

bool ExpertStore::may_be_evicted(const Slot& slot) const {
    return slot.pins == 0 && slot.read.state.load(std::memory_order_acquire) != ReadState::pending;
}

/// What could not be read is not kept once nobody holds it: who asks again reads again.
void ExpertStore::forget_if_failed(Slot& slot) {
    if (slot.pins > 0 || slot.read.state.load(std::memory_order_acquire) != ReadState::failed) return;
    if (slot.key >= 0) slot_of_[static_cast<size_t>(slot.key)] = -1;
    slot.key = -1;
}

/// One pass over the slots for all that a call has to fill.
void ExpertStore::find_victims(size_t count) {
    victims_.clear();
    for (int64_t i = 0; i < usable_slots_; i++) {
        const Slot& slot = slots_[static_cast<size_t>(i)];
        if (!may_be_evicted(slot)) continue;
        const float value =
            slot.key < 0 ? -std::numeric_limits<float>::infinity() : replacement_->value(slot.key);
        victims_.push_back({value, static_cast<int32_t>(i)});
    }
    const auto less = [](const Victim& a, const Victim& b) { return a.value < b.value; };
    if (count < victims_.size()) {
        std::nth_element(victims_.begin(), victims_.begin() + static_cast<std::ptrdiff_t>(count),
                         victims_.end(), less);
        victims_.resize(count);
    }
    std::sort(victims_.rbegin(), victims_.rend(), less);
}

/// -1: every slot is in use.
int32_t ExpertStore::take_victim() {
    while (!victims_.empty()) {
        const int32_t slot = victims_.back().slot;
        victims_.pop_back();
        // Another session may have made an expert resident that is asked for behind a missing one: leased since.
        if (may_be_evicted(slots_[static_cast<size_t>(slot)])) return slot;
    }
    return -1;
}

/// Makes the slot the expert's.
void ExpertStore::assign(int32_t index, int64_t key) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    slot.key = key;
    slot_of_[static_cast<size_t>(key)] = index;
    const auto bank = static_cast<size_t>(key / experts_);
    const container::ExpertEntry& entry =
        container_->expert_entry(bank, static_cast<int32_t>(key % experts_));
    container::DriveRead& read = slot.read;
    read.file = static_cast<uint32_t>(bank);
    read.offset = entry.offset;
    read.length = entry.length;
    read.to = memory_of(index).data();
    read.hash = entry.hash;
    read.verify = verify_;
    read.error.reset();
}

void ExpertStore::fill(int32_t index, size_t bank, int32_t expert, bool urgent) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    if (slot.key >= 0) slot_of_[static_cast<size_t>(slot.key)] = -1;
    container::DriveRead& read = slot.read;
    slot.former = read.state.load(std::memory_order_relaxed) == ReadState::done ? slot.key : -1;
    assign(index, key_of(bank, expert));
    read.urgent.store(urgent, std::memory_order_relaxed);
    // Pending from here on, so that nobody takes the slot before it is submitted.
    read.state.store(ReadState::pending, std::memory_order_relaxed);
    slot.expected = !urgent;
    counters_[bank].bytes += read.length;
    started_.push_back(&read);
}

void ExpertStore::submit_started() {
    if (!started_.empty()) reader_->submit(started_);
    started_.clear();
}

void ExpertStore::wait_for_a_slot(std::unique_lock<std::mutex>& lock) {
    // Reads that nobody waits for end by themselves; else another session gives a lease back.
    submit_started();
    const auto idle_read = std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) {
        return slot.pins == 0 && slot.read.state.load(std::memory_order_relaxed) == ReadState::pending;
    });
    if (idle_read == slots_.end()) {
        slot_freed_.wait(lock);
        return;
    }
    lock.unlock();
    idle_read->read.state.wait(ReadState::pending, std::memory_order_acquire);
    lock.lock();
}

void ExpertStore::unpin(int32_t index) {
    Slot& slot = slots_[static_cast<size_t>(index)];
    slot.pins--;
    if (slot.pins > 0) return;
    if (index >= usable_slots_) {
        retire_slots();
    } else {
        forget_if_failed(slot);
    }
    slot_freed_.notify_one();
}

std::vector<uint32_t> ExpertStore::use_counts() const {
    const std::lock_guard lock(mutex_);
    return uses_;
}

void ExpertStore::order(size_t bank, std::span<int32_t> experts) const {
    std::unique_lock lock(mutex_);
    const auto absent =
        !reader_ ? experts.begin() : std::partition(experts.begin(), experts.end(), [&](int32_t expert) {
            return slot_of_[static_cast<size_t>(key_of(bank, expert))] >= 0;
        });
    lock.unlock();
    std::sort(absent, experts.end(), [&](int32_t a, int32_t b) {
        return container_->expert_entry(bank, a).offset < container_->expert_entry(bank, b).offset;
    });
}

void ExpertStore::learn(size_t bank, int64_t tokens, std::span<const float> scores,
                        std::span<const int32_t> chosen) {
    if (!reader_) return;
    const std::lock_guard lock(mutex_);
    drop_expectations(bank);
    if (retiring_) retire_slots();
    replacement_->on_layer(static_cast<int64_t>(bank), tokens);
    for (const int32_t expert : chosen) {
        const int64_t key = key_of(bank, expert);
        replacement_->on_use(key);
        uses_[static_cast<size_t>(key)]++;
    }
    const auto count = static_cast<size_t>(tokens);
    replacement_->on_scores(scores.last(scores.size() / count), chosen.last(chosen.size() / count));
}

uint32_t ExpertStore::landed() const {
    return reader_ ? reader_->landed() : 0;
}

void ExpertStore::wait_for_landing(size_t bank, uint32_t seen) {
    const auto start = Clock::now();
    reader_->wait_for_landing(seen);
    count_wait(bank, Clock::now() - start);
}

void ExpertStore::count_wait(size_t bank, std::chrono::nanoseconds waited) {
    const std::lock_guard lock(mutex_);
    counters_[bank].wait_nanoseconds += static_cast<uint64_t>(waited.count());
}

ExpertCounters ExpertStore::counters(size_t bank) const {
    const std::lock_guard lock(mutex_);
    return counters_[bank];
}

ExpertCounters ExpertStore::counters() const {
    const std::lock_guard lock(mutex_);
    ExpertCounters sum;
    for (const ExpertCounters& one : counters_) sum += one;
    return sum;
}

container::DriveReaderCounters ExpertStore::drive() const {
    return reader_ ? reader_->counters() : container::DriveReaderCounters{};
}

void ExpertStore::limit_slots(int64_t slots) {
    if (!reader_) return;
    const std::lock_guard lock(mutex_);
    usable_slots_ = std::clamp(slots, least_slots_, static_cast<int64_t>(slots_.size()));
    retire_slots();
    slot_freed_.notify_all();
}

/// Those past the limit that nobody uses: forgotten, and their memory given back.
void ExpertStore::retire_slots() {
    retiring_ = false;
    for (auto i = static_cast<size_t>(usable_slots_); i < slots_.size(); i++) {
        Slot& slot = slots_[i];
        if (slot.key < 0) continue;
        if (!may_be_evicted(slot)) {
            retiring_ = true;
            continue;
        }
        slot_of_[static_cast<size_t>(slot.key)] = -1;
        slot.key = -1;
        arena_.give_back(i * slot_bytes_, slot_bytes_);
    }
}

}  // namespace waste::engine
