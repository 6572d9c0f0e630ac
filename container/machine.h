// What this machine lets the process have of its memory and of its CPUs' time, and what of it is there now.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "container/result.h"

namespace waste::container {

struct MachineMemory {
    uint64_t physical_bytes;
    /// The smallest of physical memory and the limits (memory.max, memory.high, v1's limit_in_bytes) of the
    /// process's control group and all its ancestors. What others use at the moment is left out on purpose: a
    /// plan made twice must come out the same.
    uint64_t usable_bytes;
    std::string limited_by;  ///< the file that holds the smallest limit; empty: physical memory
};

/// `root` stands before every path read ("" outside tests).
Result<MachineMemory> read_machine_memory(const std::string& root);

/// What changes from moment to moment.
struct MemoryNow {
    /// The least of what the kernel calls available (MemAvailable: free, or file pages it can drop) and of what the
    /// process's control group and each of its ancestors still grant: limit less usage, file pages not counted.
    uint64_t available_bytes;
    std::string limited_by;  ///< the file that holds the limit of the least; empty: the machine
    /// Percent of the last ten seconds in which somebody in the process's group, or else on the machine, waited for
    /// memory (pressure stall information); nothing where the kernel does not tell.
    std::optional<double> pressure_percent;
    bool has_swap;  ///< without it, what does not fit ends in the out-of-memory killer
};

/// `root` as above.
Result<MemoryNow> read_memory_now(const std::string& root);

/// Memory that a process holds and nobody can have before it lets go: anonymous and shared, not file pages; 0 where
/// that is not told.
uint64_t read_taken_bytes(const std::string& root, int64_t pid);

/// CPUs' worth of time that the process's control group and all its ancestors grant (cpu.max, v1's cfs_quota_us), rounded
/// up; 0: no limit.
int read_cpu_quota(const std::string& root);

}  // namespace waste::container
