// The memory that rows walk over, far larger than any cache, and how fast this machine walks it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "container/memory.h"
#include "kernels/format.h"
#include "tests/bench/team.h"

namespace waste::bench {

/// Huge where the system grants them.
enum class Pages { ordinary, huge };

/// Bytes a second.
struct MemoryRates {
    double read;
    double update;  ///< every byte read and written back, counted twice
};

class Pool {
  public:
    static constexpr int64_t kBytes = int64_t{512} << 20;

    /// Each member of the team touches its part first, so that every node of the machine has its share.
    Pool(Pages pages, Team& team);

    /// Kernels do not look at the values, so all blocks are alike and matrices of any shape can be laid over
    /// them.
    const std::byte* weights(kernels::Format format);

    /// As f32 to be written to.
    float* states();

    /// Best of several passes, the team's members on a part each. One thread goes by CPU time, several by the
    /// clock.
    MemoryRates measure(Team& team);

  private:
    container::SystemMemory memory_;
    std::optional<kernels::Format> content_;
};

}  // namespace waste::bench
