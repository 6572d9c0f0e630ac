#include "engine/parallel.h"

#include <sched.h>

#include <algorithm>
#include <exception>
#include <span>

#include "container/topology.h"

namespace waste::engine {
namespace {

// About five microseconds: longer than the gap between two regions of a token, shorter than anyone else
// notices.
constexpr int kSpins = 4000;

/// Waits until `value` differs from `old` and returns what it has become.
uint32_t wait_for_change(const std::atomic<uint32_t>& value, uint32_t old) {
    for (int i = 0; i < kSpins; i++) {
        const uint32_t now = value.load(std::memory_order_acquire);
        if (now != old) return now;
    }
    value.wait(old, std::memory_order_acquire);
    return value.load(std::memory_order_acquire);
}

/// A binding that the system refuses costs speed and nothing else, so it is not an error here.
void run_on(std::span<const int> cpus) {
    cpu_set_t set;
    CPU_ZERO(&set);
    for (const int cpu : cpus) CPU_SET(static_cast<size_t>(cpu), &set);
    (void)sched_setaffinity(0, sizeof set, &set);
}

void bind_thread(const CpuBinding& binding, size_t thread) {
    if (binding.cpus.empty()) return;
    const std::span<const int> all(binding.cpus);
    run_on(binding.one_each ? all.subspan(thread % all.size(), 1) : all);
}

}  // namespace

AffinityOfCaller::AffinityOfCaller(const CpuBinding& binding) : before_(container::affinity_cpus()) {
    bind_thread(binding, 0);
}

AffinityOfCaller::~AffinityOfCaller() {
    if (thread_ == std::this_thread::get_id()) run_on(before_);
}

ThreadPool::ThreadPool(int threads, const CpuBinding& binding) {
    if (!binding.cpus.empty()) caller_.emplace(binding);
    workers_.reserve(static_cast<size_t>(std::max(threads - 1, 0)));
    try {
        for (int i = 1; i < threads; i++)
            workers_.emplace_back([this, i, binding] {
                bind_thread(binding, static_cast<size_t>(i));
                work(i);
            });
    } catch (const std::exception&) {
        // The system gives no more threads, or no memory for them; those there are do the same work.
    }
}

ThreadPool::~ThreadPool() {
    stop_.store(true, std::memory_order_relaxed);
    region_.fetch_add(1, std::memory_order_release);
    region_.notify_all();
    for (std::thread& worker : workers_) worker.join();
}

void ThreadPool::run_erased(int64_t tasks, Call call, const void* self) {
    if (workers_.empty() || tasks <= 1) {
        for (int64_t i = 0; i < tasks; i++) call(self, i, 0);
        return;
    }
    call_ = call;
    self_ = self;
    tasks_ = tasks;
    unfinished_.store(static_cast<uint32_t>(tasks), std::memory_order_relaxed);
    untaken_.store(tasks, std::memory_order_release);
    region_.fetch_add(1, std::memory_order_release);
    region_.notify_all();
    take_tasks(0);
    for (uint32_t left = unfinished_.load(std::memory_order_acquire); left != 0;) {
        left = wait_for_change(unfinished_, left);
    }
}

void ThreadPool::take_tasks(int thread) {
    while (true) {
        // A worker that comes late may take from the next region instead: its tasks are as good.
        const int64_t left = untaken_.fetch_sub(1, std::memory_order_acq_rel);
        if (left <= 0) return;
        call_(self_, tasks_ - left, thread);
        if (unfinished_.fetch_sub(1, std::memory_order_acq_rel) == 1) unfinished_.notify_one();
    }
}

void ThreadPool::work(int thread) {
    uint32_t seen = 0;
    while (true) {
        seen = wait_for_change(region_, seen);
        if (stop_.load(std::memory_order_relaxed)) return;
        take_tasks(thread);
    }
}

int available_cpus() {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
    return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace waste::engine
