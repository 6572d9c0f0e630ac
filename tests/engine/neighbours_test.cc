#include "engine/neighbours.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>

#include "tests/support/child.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

constexpr uint64_t kMiB = uint64_t{1} << 20, kGiB = uint64_t{1} << 30;

class NeighboursTest : public ::testing::Test {
  protected:
    Result<BudgetEntry> enter(uint64_t budget) {
        return BudgetEntry::enter(directory_, [&](std::span<const Neighbour>) { return budget; });
    }

    waste::test::TempDir dir_;
    std::string directory_ = dir_.file("engines");
};

TEST_F(NeighboursTest, ASecondEngineSeesTheFirst) {
    EXPECT_TRUE(other_engines(directory_)->empty());
    std::optional<Result<BudgetEntry>> kept;
    std::vector<char> taken;
    waste::test::Child child([&] {
        kept = enter(3 * kGiB);
        taken.assign(64 * kMiB, 1);
    });
    const auto others = other_engines(directory_);
    ASSERT_TRUE(others) << others.error().text();
    ASSERT_EQ(others->size(), 1u);
    EXPECT_EQ(others->front().pid, child.pid());
    EXPECT_EQ(others->front().budget_bytes, 3 * kGiB);
    EXPECT_GE(others->front().taken_bytes, 64 * kMiB);
    EXPECT_LT(others->front().taken_bytes, 3 * kGiB);
    child.kill_and_wait();
    EXPECT_TRUE(other_engines(directory_)->empty());
}

TEST_F(NeighboursTest, ItHasTakenNoMoreThanItsBudget) {
    const auto entry = enter(4096);
    ASSERT_TRUE(entry) << entry.error().text();
    EXPECT_EQ(other_engines(directory_)->front().taken_bytes, 4096u);
}

/// A machine of 64 GiB for several that each take what is safe.
TEST_F(NeighboursTest, AutomaticBudgetsFitIntoTheMachineTogether) {
    std::vector<BudgetEntry> entries;
    uint64_t sum = 0, first = 0;
    for (int i = 0; i < 4; i++) {
        auto entry =
            BudgetEntry::enter(directory_, [&](std::span<const Neighbour> others) -> Result<uint64_t> {
                MemoryFacts facts{64 * kGiB, 60 * kGiB};
                for (const Neighbour& other : others) {
                    facts.neighbour_bytes += other.budget_bytes;
                    facts.neighbour_untaken_bytes += other.budget_bytes;
                }
                // Not the whole: so that something is left to the next.
                const uint64_t budget = safe_bytes(facts) / 2;
                sum += budget;
                if (i == 0) first = budget;
                return budget;
            });
        ASSERT_TRUE(entry) << entry.error().text();
        entries.push_back(std::move(*entry));
    }
    EXPECT_EQ(other_engines(directory_)->size(), 4u);
    EXPECT_EQ(first, 28 * kGiB);
    EXPECT_LE(sum, 56 * kGiB);
}

TEST_F(NeighboursTest, DamagedEntriesAreLeftOut) {
    for (const char* text : {"", "budget", "budget \n", "budget 5", "budget 5 \n", "budget -5\n",
                             "budget 5x\n", "budget 99999999999999999999\n", "\n"}) {
        const auto file = container::LiveFile::enter(
            directory_, [&](std::span<const container::LiveEntry>) { return std::string(text); });
        ASSERT_TRUE(file) << file.error().text();
        EXPECT_TRUE(other_engines(directory_)->empty()) << text;
    }
    const auto good = enter(UINT64_MAX);
    EXPECT_EQ(other_engines(directory_)->front().budget_bytes, UINT64_MAX);
}

TEST_F(NeighboursTest, FactsCountWhatIsPromised) {
    std::filesystem::create_directories(dir_.file("proc/self"));
    std::ofstream(dir_.file("proc/meminfo")) << "MemTotal: 4194304 kB\nMemAvailable: 3145728 kB\n";
    const std::vector<Neighbour> others{{1, kGiB, 256 * kMiB}, {2, 512 * kMiB, 512 * kMiB}};
    const auto facts = read_memory_facts(dir_.path(), others);
    ASSERT_TRUE(facts) << facts.error().text();
    EXPECT_EQ(facts->usable_bytes, 4 * kGiB);
    EXPECT_EQ(facts->available_bytes, 3 * kGiB);
    EXPECT_EQ(facts->neighbour_bytes, 1536 * kMiB);
    EXPECT_EQ(facts->neighbour_untaken_bytes, 768 * kMiB);
    const std::vector<Neighbour> boasters{{1, UINT64_MAX, 0}, {2, UINT64_MAX, 0}};
    EXPECT_EQ(safe_bytes(*read_memory_facts(dir_.path(), boasters)), 0u);
    std::filesystem::remove(dir_.file("proc/meminfo"));
    EXPECT_FALSE(read_memory_facts(dir_.path(), {}));
}

}  // namespace
}  // namespace waste::engine
