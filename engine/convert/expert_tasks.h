// Experts handled in parallel, in bounded memory.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "container/result.h"
#include "engine/parallel.h"

namespace waste::engine {

/// What a task needs to encode an expert; empty at first, kept from one expert of the task to its next.
struct ExpertBuffers {
    std::vector<std::byte> record;
    std::vector<float> rows;
};

/// Calls `task(i, buffers)` for every i in [0, count), in parallel, and returns the first error, after which
/// no further call begins. Records of up to `record_bytes` that are in flight together stay within 128 MiB,
/// unless one alone is larger.
Result<void> for_each_expert(ThreadPool& pool, int64_t count, uint64_t record_bytes,
                             const std::function<Result<void>(int64_t, ExpertBuffers&)>& task);

}  // namespace waste::engine
