// Keeps a run's expert cache within what the machine can spare while it runs: control groups may be tightened, other
// programs may need memory. The cache gives slots back, and takes them again when there is room; no token changes.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <thread>

#include "container/machine.h"
#include "engine/expert_store.h"

namespace waste::engine {

/// What a moment's facts ask of a cache of `slots`, which was planned with `planned` and works with `least`.
///
/// Where somebody waits for memory, or less than 1/16 of the usable memory is available, an eighth of the slots goes
/// back, or as much as is lacking. Where nobody waits and twice that is available, a sixteenth of the planned slots may
/// come back, as far as that leaves the same room. In between nothing happens, so that it does not swing.
int64_t slots_for(const container::MachineMemory& machine, const container::MemoryNow& now,
                  uint64_t slot_bytes, int64_t slots, int64_t planned, int64_t least);

/// A thread that looks once a second, while it lives. `experts` outlives it.
class MemoryWatch {
  public:
    explicit MemoryWatch(ExpertStore& experts);
    ~MemoryWatch();
    MemoryWatch(const MemoryWatch&) = delete;
    MemoryWatch& operator=(const MemoryWatch&) = delete;

    /// Least slots that were in use so far.
    int64_t least_slots_seen() const { return least_seen_.load(std::memory_order_relaxed); }

  private:
    void watch();

    ExpertStore& experts_;
    std::atomic<int64_t> least_seen_;
    std::mutex mutex_;
    std::condition_variable stopping_;
    bool stop_ = false;  ///< guarded by mutex_
    std::thread thread_;
};

}  // namespace waste::engine
