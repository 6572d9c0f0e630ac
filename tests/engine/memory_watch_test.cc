// What the expert cache gives back and takes again as the machine's memory changes.
#include "engine/memory_watch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <vector>

#include "tests/support/store_test.h"

namespace waste::engine {
namespace {

using container::MachineMemory;
using container::MemoryNow;

constexpr uint64_t kGiB = uint64_t{1} << 30;
constexpr uint64_t kSlot = uint64_t{16} << 20;
constexpr int64_t kPlanned = 1600, kLeast = 32;
/// Of 64 GiB: below 4 GiB is too little, above 8 there is room.
const MachineMemory kMachine{64 * kGiB, 64 * kGiB, ""};

MemoryNow available(uint64_t bytes, std::optional<double> pressure = 0.0) {
    return {bytes, "", pressure, false};
}
int64_t slots(const MemoryNow& now, int64_t have) {
    return slots_for(kMachine, now, kSlot, have, kPlanned, kLeast);
}

TEST(SlotsFor, StayWhereNothingIsWrong) {
    EXPECT_EQ(slots(available(4 * kGiB), 1000), 1000) << "just enough";
    EXPECT_EQ(slots(available(8 * kGiB), 1000), 1000) << "nothing to spare yet";
    EXPECT_EQ(slots(available(40 * kGiB), kPlanned), kPlanned) << "never above what was planned";
    EXPECT_EQ(slots(available(40 * kGiB, 5.0), 1000), 1000) << "somebody waits a little: no reason to grow";
}

TEST(SlotsFor, GiveBackWhatIsLacking) {
    EXPECT_EQ(slots(available(3 * kGiB), 1000), 1000 - 64);
    EXPECT_EQ(slots(available(4 * kGiB - 1), 1000), 999) << "a part of a slot is a slot";
    EXPECT_EQ(slots(available(0), 1000), 1000 - 256);
    EXPECT_EQ(slots(available(0), 100), kLeast);
    EXPECT_EQ(slots(available(0), kLeast), kLeast);
}

TEST(SlotsFor, GiveBackAnEighthUnderPressure) {
    EXPECT_EQ(slots(available(6 * kGiB, 10.0), 1000), 875);
    EXPECT_EQ(slots(available(60 * kGiB, 90.0), 1000), 875) << "whatever is said to be available";
    EXPECT_EQ(slots(available(0, 90.0), 1000), 1000 - 256) << "the greater of both";
    EXPECT_EQ(slots(available(60 * kGiB, 90.0), kLeast + 2), kLeast);
    EXPECT_EQ(slots_for(kMachine, available(kGiB * 60, 90.0), kSlot, 5, 8, 2), 4) << "one at the least";
}

TEST(SlotsFor, ComeBackInSmallSteps) {
    EXPECT_EQ(slots(available(40 * kGiB), 1000), 1100);
    EXPECT_EQ(slots(available(40 * kGiB, std::nullopt), 1000), 1100) << "a kernel that does not tell";
    EXPECT_EQ(slots(available(40 * kGiB), kPlanned - 3), kPlanned);
    EXPECT_EQ(slots(available(8 * kGiB + 3 * kSlot), 1000), 1003) << "as far as there is room";
    EXPECT_EQ(slots_for(kMachine, available(40 * kGiB), kSlot, 5, 8, 2), 6) << "one at the least";
}

TEST(SlotsFor, KeepTheirBoundsWhateverTheMachineSays) {
    std::mt19937_64 random(11);
    const auto any = [&](uint64_t end) {
        return std::uniform_int_distribution<uint64_t>(0, end - 1)(random);
    };
    for (int i = 0; i < 20'000; i++) {
        const uint64_t usable = any(uint64_t{1} << (1 + any(48)));
        const MachineMemory machine{usable, usable, ""};
        // What is available may be more than the machine is said to have.
        const MemoryNow now = available(any(uint64_t{1} << (1 + any(63))), static_cast<double>(any(101)));
        const uint64_t slot = 1 + any(uint64_t{1} << (1 + any(30)));
        const auto planned = static_cast<int64_t>(1 + any(100'000));
        const auto least = static_cast<int64_t>(1 + any(static_cast<uint64_t>(planned)));
        const auto have = least + static_cast<int64_t>(any(static_cast<uint64_t>(planned - least + 1)));
        const int64_t wanted = slots_for(machine, now, slot, have, planned, least);
        ASSERT_GE(wanted, least);
        ASSERT_LE(wanted, planned);
        const uint64_t margin = usable / 16;
        const double pressure = *now.pressure_percent;
        if (now.available_bytes < margin || pressure >= 10) {
            ASSERT_TRUE(wanted < have || have == least);
        } else if (now.available_bytes <= 2 * margin || pressure > 1) {
            ASSERT_EQ(wanted, have);
        } else {
            ASSERT_GE(wanted, have);
            ASSERT_LE(static_cast<uint64_t>(wanted - have), (now.available_bytes - 2 * margin) / slot)
                << "the room must remain";
        }
    }
}

/// A cache on a machine where others leave `others[i]` bytes at step i: its slots after each step.
std::vector<int64_t> follow(const std::vector<uint64_t>& others) {
    std::vector<int64_t> out{kPlanned};
    for (const uint64_t left : others) {
        const uint64_t taken = static_cast<uint64_t>(out.back()) * kSlot;
        out.push_back(slots(available(left > taken ? left - taken : 0), out.back()));
    }
    return out;
}

TEST(SlotsFor, DoNotSwing) {
    for (uint64_t left = 0; left <= 64 * kGiB; left += kGiB / 4) {
        const auto seen = follow(std::vector<uint64_t>(100, left));
        EXPECT_TRUE(std::is_sorted(seen.rbegin(), seen.rend())) << "never up after down: " << left;
        EXPECT_EQ(seen[60], seen[100]) << left;
    }
}

TEST(SlotsFor, GoAndComeBackAsOthersComeAndGo) {
    std::vector<uint64_t> others(10, 60 * kGiB);
    others.insert(others.end(), 20, 12 * kGiB);  // somebody takes 48 GiB
    others.insert(others.end(), 40, 60 * kGiB);  // and is gone
    const auto seen = follow(others);
    EXPECT_EQ(seen[10], kPlanned);
    EXPECT_EQ(seen[30] * static_cast<int64_t>(kSlot), static_cast<int64_t>(8 * kGiB));
    EXPECT_EQ(seen.back(), kPlanned);
}

using MemoryWatchTest = test::StoreTest;

TEST_F(MemoryWatchTest, LooksAtWhatStreamsAndEndsAtOnce) {
    EXPECT_EQ(MemoryWatch(model_.experts()).least_slots_seen(), 0) << "mapped: nothing to give back";
    open(40);
    EXPECT_EQ(MemoryWatch(*store_).least_slots_seen(), 40);
}

}  // namespace
}  // namespace waste::engine
