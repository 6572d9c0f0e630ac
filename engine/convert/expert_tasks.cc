#include "engine/convert/expert_tasks.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <optional>

namespace waste::engine {
namespace {

constexpr uint64_t kRecordBudgetBytes = 128 << 20;

}  // namespace

Result<void> for_each_expert(ThreadPool& pool, int64_t count, uint64_t record_bytes,
                             const std::function<Result<void>(int64_t, ExpertBuffers&)>& task) {
    const uint64_t at_once = std::max<uint64_t>(1, kRecordBudgetBytes / std::max<uint64_t>(1, record_bytes));
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    std::mutex error_mutex;
    std::optional<Error> first_error;
    // One task a thread, each with buffers of its own, taking experts until none is left.
    pool.run(std::min<int64_t>(pool.size(), static_cast<int64_t>(at_once)), [&](int64_t) {
        ExpertBuffers buffers;
        for (int64_t i = next++; i < count && !stop; i = next++) {
            const auto ok = task(i, buffers);
            if (ok) continue;
            const std::lock_guard lock(error_mutex);
            if (!first_error) first_error = ok.error();
            stop = true;
        }
    });
    if (first_error) return tl::unexpected(*first_error);
    return {};
}

}  // namespace waste::engine
