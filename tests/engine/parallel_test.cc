#include "engine/parallel.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <mutex>
#include <numeric>
#include <vector>

#include "container/topology.h"

namespace waste::engine {
namespace {

class ThreadPoolTest : public testing::TestWithParam<int> {};

INSTANTIATE_TEST_SUITE_P(Sizes, ThreadPoolTest, testing::Values(1, 2, 3, 4));

TEST_P(ThreadPoolTest, HasTheSizeAskedFor) {
    EXPECT_EQ(ThreadPool(GetParam()).size(), GetParam());
}

TEST_P(ThreadPoolTest, RunsEveryTaskOnce) {
    ThreadPool pool(GetParam());
    for (const int64_t tasks : {0, 1, 2, 3, 4, 5, 17, 1000}) {
        std::vector<std::atomic<int>> calls(static_cast<size_t>(tasks));
        pool.run(tasks, [&](int64_t i) { calls[static_cast<size_t>(i)]++; });
        for (size_t i = 0; i < calls.size(); i++) EXPECT_EQ(calls[i], 1) << "task " << i << " of " << tasks;
    }
}

TEST_P(ThreadPoolTest, NoTasksNoCalls) {
    ThreadPool pool(GetParam());
    std::atomic<int> calls{0};
    pool.run(0, [&](int64_t) { calls++; });
    pool.run(-1, [&](int64_t) { calls++; });
    EXPECT_EQ(calls, 0);
}

// What a task wrote must be visible when run() returns, and what the caller wrote before must be visible to
// the tasks: plain memory on purpose, the thread sanitizer watches.
TEST_P(ThreadPoolTest, RegionsHappenOneAfterAnother) {
    ThreadPool pool(GetParam());
    std::vector<int64_t> values(37, 0);
    constexpr int kRegions = 2000;
    for (int region = 0; region < kRegions; region++) {
        const int64_t tasks = region % 38;
        const int64_t step = region;  // lives on the caller's stack, as a region's inputs do
        pool.run(tasks, [&](int64_t i) { values[static_cast<size_t>(i)] += step; });
    }
    for (size_t i = 0; i < values.size(); i++) {
        int64_t expected = 0;
        for (int region = 0; region < kRegions; region++) {
            if (static_cast<int64_t>(i) < region % 38) expected += region;
        }
        EXPECT_EQ(values[i], expected) << "value " << i;
    }
}

TEST_P(ThreadPoolTest, LongAndShortTasksMix) {
    ThreadPool pool(GetParam());
    std::vector<double> sums(8, 0.0);
    for (int region = 0; region < 20; region++) {
        pool.run(8, [&](int64_t i) {
            // Task 0 takes about a hundred times as long as task 7.
            std::vector<double> work(static_cast<size_t>(i == 0 ? 200000 : 2000 * (8 - i)), 0.5);
            sums[static_cast<size_t>(i)] += std::accumulate(work.begin(), work.end(), 0.0);
        });
    }
    EXPECT_EQ(sums[0], 20 * 100000.0);
    for (int64_t i = 1; i < 8; i++) {
        EXPECT_EQ(sums[static_cast<size_t>(i)], 20 * 1000.0 * static_cast<double>(8 - i));
    }
}

TEST_P(ThreadPoolTest, LivesAndDiesInAnyState) {
    for (int round = 0; round < 50; round++) {
        ThreadPool pool(GetParam());
        if (round % 2 == 0) continue;  // never used
        std::atomic<int64_t> sum{0};
        pool.run(round, [&](int64_t i) { sum += i; });
        EXPECT_EQ(sum, static_cast<int64_t>(round) * (round - 1) / 2);
    }
}

TEST_P(ThreadPoolTest, TwoPoolsDoNotMeet) {
    ThreadPool a(GetParam()), b(GetParam());
    std::atomic<int> calls_a{0}, calls_b{0};
    for (int region = 0; region < 100; region++) {
        a.run(5, [&](int64_t) { calls_a++; });
        b.run(7, [&](int64_t) { calls_b++; });
    }
    EXPECT_EQ(calls_a, 500);
    EXPECT_EQ(calls_b, 700);
}

TEST(AvailableCpus, IsAtLeastOne) {
    EXPECT_GE(available_cpus(), 1);
}

std::vector<int> affinity_of_tasks(ThreadPool& pool) {
    std::vector<int> seen;
    std::mutex mutex;
    pool.run(64, [&](int64_t) {
        const std::vector<int> mine = container::affinity_cpus();
        const std::lock_guard lock(mutex);
        seen.insert(seen.end(), mine.begin(), mine.end());
    });
    std::sort(seen.begin(), seen.end());
    seen.erase(std::unique(seen.begin(), seen.end()), seen.end());
    return seen;
}

TEST(ThreadPoolBinding, KeepsTasksOnItsCpusAndPutsTheCallerBack) {
    const std::vector<int> mask = container::affinity_cpus();
    const std::vector<int> last{mask.back()};
    for (const bool one_each : {false, true}) {
        {
            ThreadPool pool(3, {last, one_each});
            EXPECT_EQ(affinity_of_tasks(pool), last);
        }
        EXPECT_EQ(container::affinity_cpus(), mask);
    }
}

TEST(ThreadPoolBinding, GivesEachThreadItsOwn) {
    const std::vector<int> mask = container::affinity_cpus();
    if (mask.size() < 2) GTEST_SKIP() << "needs two CPUs";
    const std::vector<int> two{mask[0], mask[1]};
    ThreadPool pool(2, {two, true});
    EXPECT_EQ(container::affinity_cpus(), std::vector<int>{mask[0]});
    for (const int cpu : affinity_of_tasks(pool)) EXPECT_TRUE(cpu == two[0] || cpu == two[1]);
}

TEST(Placement, DefaultIsWithinTheMask) {
    const std::vector<int> mask = container::affinity_cpus();
    const Placement placement = choose_placement(0);
    EXPECT_GE(placement.threads, 1);
    EXPECT_LE(placement.threads, static_cast<int>(mask.size()));
    for (const int cpu : placement.binding.cpus) {
        EXPECT_TRUE(std::binary_search(mask.begin(), mask.end(), cpu)) << cpu;
    }
    EXPECT_EQ(choose_placement(7).threads, 7);
}

TEST(Placement, ListsAreCheckedAgainstTheMachine) {
    const int last = container::affinity_cpus().back();
    const auto one = placement_on(std::to_string(last), "--cpus");
    ASSERT_TRUE(one) << one.error().text();
    EXPECT_EQ(one->threads, 1);
    EXPECT_TRUE(one->binding.one_each);
    EXPECT_FALSE(placement_on("60000", "--cpus"));
    EXPECT_FALSE(placement_on("zero", "--cpus"));
}

}  // namespace
}  // namespace waste::engine
