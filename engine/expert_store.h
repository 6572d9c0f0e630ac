// Where routed experts are while a model runs: in the mapped banks, kept by the page cache; or in an arena of fixed
// slots that direct reads fill, for banks larger than memory.
//
// A slot holds one record as it lies in its bank, so kernels consume it in place. An expert that is asked for twice is
// read once: the second asker joins the read in flight. A lease pins its slot; without one, the slot whose expert is
// least likely to be wanted soon is the next to go (engine/replacement.h). Results never depend on what is resident.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "container/drive_reader.h"
#include "container/memory.h"
#include "container/reader.h"
#include "engine/replacement.h"

namespace waste::engine {

struct ExpertStoreOptions {
    int64_t slots = 0;  ///< 0: experts stay in the mapped banks
    ReplacementPolicy policy = kDefaultReplacement;
    bool verify = true;  ///< compare each record that is read with its checksum
};

/// What happened so far to the experts of one layer, or of all.
struct ExpertCounters {
    uint64_t uses = 0;              ///< an expert was wanted
    uint64_t hits = 0;              ///< and lay there
    uint64_t joined = 0;            ///< and was on its way
    uint64_t misses = 0;            ///< and had to be asked for
    uint64_t bytes = 0;             ///< asked of the drive, look-ahead included
    uint64_t ahead_reads = 0;       ///< read before the router had chosen
    uint64_t ahead_used = 0;        ///< of those, chosen by the next router
    uint64_t wait_nanoseconds = 0;  ///< of threads that had nothing else to compute

    ExpertCounters& operator+=(const ExpertCounters& other);
    ExpertCounters operator-(const ExpertCounters& other) const;
};

/// Thread-safe.
class ExpertStore {
  public:
    /// An expert that stays where it is while the lease lives.
    class Lease {
      public:
        Lease() = default;
        Lease(Lease&& other) noexcept;
        Lease& operator=(Lease&& other) noexcept;
        ~Lease() { release(); }

        /// True where view() need not wait for the drive.
        bool landed() const;
        /// Waits for the read; an error names layer, expert, file and offset.
        Result<container::ExpertView> view() const;
        void release();

      private:
        friend class ExpertStore;
        Lease(ExpertStore* store, size_t bank, int32_t expert, int32_t slot)
            : store_(store), bank_(bank), expert_(expert), slot_(slot) {}
        ExpertStore* store_ = nullptr;
        size_t bank_ = 0;
        int32_t expert_ = 0;
        int32_t slot_ = -1;  ///< -1: in the mapped bank
    };

    /// `container` outlives the store. `reader` reads the banks as files 0, 1, …; it is used only where experts stream,
    /// outlives every use, and ends before the store. Refuses fewer slots than one layer's choice needs twice over.
    static Result<std::unique_ptr<ExpertStore>> open(const container::Container& container, int64_t top_k,
                                                     const ExpertStoreOptions& options,
                                                     container::DriveReader* reader);
    ~ExpertStore();

    bool streams() const { return reader_ != nullptr; }
    int64_t slots() const { return static_cast<int64_t>(slots_.size()); }
    int64_t usable_slots() const;  ///< after limit_slots()
    int64_t least_slots() const { return least_slots_; }
    uint64_t slot_bytes() const { return slot_bytes_; }
    /// How records are read, for people.
    std::string description() const;

    /// Leases on experts of a bank, in order, until there is one for each or no slot is left: reads of those that are
    /// missing have begun when it returns. With `at_least_one` it waits for the first slot. Returns how many.
    size_t acquire(size_t bank, std::span<const int32_t> experts, std::span<Lease> leases, bool at_least_one);
    /// Replaces those that are here, or on their way, by -1.
    void keep_absent(size_t bank, std::span<int32_t> experts) const;
    /// Wants absent experts that the bank's next router is expected to choose, the likeliest first, as far as slots can
    /// be spared. The drive reads them where it has nothing else to do.
    void expect(size_t bank, std::span<const int32_t> experts);
    /// Takes back what is expected and has not begun to be read. So does learn() of that bank.
    void take_back_expected();
    /// Counts of earlier uses by key, layer * experts + expert, and the keys to begin with, the most promising first:
    /// their reads into empty slots begin, behind all that is asked for. Evicts nothing.
    void warm(std::span<const uint32_t> uses, std::span<const int64_t> keys);
    /// How often each key was chosen so far.
    std::vector<uint32_t> use_counts() const;

    /// Puts experts in the order in which to acquire them: first those that are here, which making room for the others
    /// could evict, then the others as they lie in the file.
    void order(size_t bank, std::span<int32_t> experts) const;

    /// What replacement learns from, before the bank's experts are asked for: of a block of tokens the scores of all
    /// experts [tokens][experts] and the choice [tokens][top_k].
    void learn(size_t bank, int64_t tokens, std::span<const float> scores, std::span<const int32_t> chosen);

    /// Counts the records that have landed; a change ends wait_for_landing(seen). For mapped experts nothing ever lands.
    uint32_t landed() const;
    void wait_for_landing(size_t bank, uint32_t seen);
    /// For others that wait for an expert.
    void count_wait(size_t bank, std::chrono::nanoseconds waited);

    ExpertCounters counters(size_t bank) const;
    ExpertCounters counters() const;  ///< of all banks
    container::DriveReaderCounters drive() const;

    /// Uses at most this many slots from now on and gives the others' memory back to the system, as soon as nobody
    /// needs them; at least the minimum that open() asks for.
    void limit_slots(int64_t slots);

  private:
    /// A record's place in the arena. Guarded by the mutex, but for `read`, whose state is atomic.
    struct Slot {
        container::DriveRead read;
        int64_t key = -1;       ///< of the expert in it or on its way; -1: none
        int64_t former = -1;    ///< key of the expert that is still in it until the read begins
        int32_t pins = 0;       ///< leases, and an expectation
        bool expected = false;  ///< read ahead, not chosen yet
    };
    explicit ExpertStore(const container::Container& container);
    Result<void> allocate(int64_t top_k, const ExpertStoreOptions& options);
    int64_t key_of(size_t bank, int32_t expert) const;
    void find_victims(size_t count);
    int32_t take_victim();
    bool may_be_evicted(const Slot& slot) const;
    void forget_if_failed(Slot& slot);
    void assign(int32_t slot, int64_t key);
    void fill(int32_t slot, size_t bank, int32_t expert, bool urgent);
    std::optional<Lease> lease(size_t bank, int32_t expert);
    void wait_for_a_slot(std::unique_lock<std::mutex>& lock);
    bool withdraw(int32_t slot);
    void withdraw_expected();
    void drop_expectations(size_t bank);
    void submit_started();
    void unpin(int32_t slot);
    void retire_slots();
    std::span<std::byte> memory_of(int32_t slot) const;

    const container::Container* container_;
    int64_t experts_ = 0;  ///< in a bank
    uint64_t slot_bytes_ = 0;
    int64_t top_k_ = 0;
    int64_t least_slots_ = 0;
    bool verify_ = true;

    mutable std::mutex mutex_;  // guards what follows, never held across a read
    std::condition_variable slot_freed_;
    std::unique_ptr<Replacement> replacement_;
    std::vector<int32_t> slot_of_;  ///< [banks * experts] -1: not resident
    std::vector<uint32_t> uses_;    ///< [banks * experts]
    std::vector<Slot> slots_;
    int64_t usable_slots_ = 0;       ///< those behind are being given back
    bool retiring_ = false;          ///< some of those were in use, or on their way, at the last look
    std::vector<int32_t> expected_;  ///< slots pinned for expected_bank_
    size_t expected_bank_ = 0;
    std::vector<container::DriveRead*> started_;  ///< to be submitted
    /// The next to go, the least worth last; valid while the mutex is held.
    struct Victim {
        float value;
        int32_t slot;
    };
    std::vector<Victim> victims_;
    std::vector<ExpertCounters> counters_;  ///< of each bank

    container::SystemMemory arena_;
    container::DriveReader* reader_ = nullptr;  ///< null: mapped
};

}  // namespace waste::engine
