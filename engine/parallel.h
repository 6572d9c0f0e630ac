// The compute threads: one pool, one region at a time.
//
// A region is a count of tasks, taken in order by whichever thread is free. Tasks are independent, so results do not
// depend on the number of threads. The caller takes tasks too and waits only for those that others have begun: a
// thread that the system keeps from running, because a neighbour has its core, holds nobody up. Waiting threads spin
// for a few microseconds (a region is often shorter than a wake-up), then sleep. No allocation and no lock in run().
//
// Thread-compatible: run() is called by one thread at a time, never from inside a task.
#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <thread>
#include <type_traits>
#include <vector>

#include "engine/placement.h"

namespace waste::engine {

/// Binds the calling thread; puts it back at the end, provided that it ends on the same thread.
class AffinityOfCaller {
  public:
    explicit AffinityOfCaller(const CpuBinding& binding);
    ~AffinityOfCaller();
    AffinityOfCaller(const AffinityOfCaller&) = delete;
    AffinityOfCaller& operator=(const AffinityOfCaller&) = delete;

  private:
    std::thread::id thread_ = std::this_thread::get_id();
    std::vector<int> before_;
};

class ThreadPool {
  public:
    /// `threads` counts the calling thread: 1 starts none. Where the system refuses threads there are fewer. With a
    /// binding the calling thread is bound like the others, as thread 0, until the pool ends.
    explicit ThreadPool(int threads, const CpuBinding& binding = {});
    ~ThreadPool();
    ThreadPool(const ThreadPool&) = delete;
    ThreadPool& operator=(const ThreadPool&) = delete;

    int size() const { return static_cast<int>(workers_.size()) + 1; }

    /// Calls task(i), or task(i, thread), for every i in [0, tasks) and returns when all are done. `thread` is in
    /// [0, size()), and no two tasks run with the same one at a time: for scratch memory.
    template <typename Task>
    void run(int64_t tasks, const Task& task) {
        const auto call = [](const void* self, int64_t i, int thread) {
            const Task& run_task = *static_cast<const Task*>(self);
            if constexpr (std::is_invocable_v<Task, int64_t, int>) {
                run_task(i, thread);
            } else {
                run_task(i);
            }
        };
        run_erased(tasks, call, &task);
    }

  private:
    using Call = void (*)(const void*, int64_t, int);
    void run_erased(int64_t tasks, Call call, const void* self);
    void take_tasks(int thread);
    void work(int thread);

    std::vector<std::thread> workers_;
    std::optional<AffinityOfCaller> caller_;
    // The region's, read only by who has taken one of its tasks: it cannot end before that task is done.
    Call call_ = nullptr;
    const void* self_ = nullptr;
    int64_t tasks_ = 0;
    std::atomic<int64_t> untaken_{0};      ///< tasks not taken yet; at or below zero there is nothing to take
    std::atomic<uint32_t> unfinished_{0};  ///< tasks not done yet
    std::atomic<uint32_t> region_{0};      ///< counts regions; a change wakes the workers
    std::atomic<bool> stop_{false};
};

/// CPUs this process may run on (its affinity mask), at least 1.
int available_cpus();

}  // namespace waste::engine
