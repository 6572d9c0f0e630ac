// The expert cache alone, over a drive that answers when the test says so and fails where it says so.
#include "engine/expert_store.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <numeric>
#include <set>
#include <thread>
#include <utility>

#include "container/file.h"
#include "engine/synth/synth.h"
#include "tests/support/store_test.h"

namespace waste::engine {
namespace {

using ExpertStoreTest = test::StoreTest;
using Lease = ExpertStore::Lease;

TEST_F(ExpertStoreTest, TwoAskersOfAnExpertShareARead) {
    open(kLeast);
    drive_->hold();
    auto first = acquire(3, {5}), second = acquire(3, {5, 6});
    EXPECT_FALSE(first[0].landed());
    EXPECT_FALSE(second[0].landed());
    drive_->release();
    EXPECT_TRUE(holds(first[0], 3, 5));
    EXPECT_TRUE(holds(second[0], 3, 5));
    EXPECT_TRUE(holds(second[1], 3, 6));
    EXPECT_EQ(first[0].view()->gate.data, second[0].view()->gate.data);
    const ExpertCounters counters = store_->counters(3);
    EXPECT_EQ(counters.uses, 3u);
    EXPECT_EQ(counters.misses, 2u);
    EXPECT_EQ(counters.joined, 1u);
    EXPECT_EQ(store_->drive().reads, 2u);
}

TEST_F(ExpertStoreTest, ManyThreadsReadEachExpertOnce) {
    open(kExperts * static_cast<int64_t>(banks()));
    std::atomic<int> wrong{0};
    const auto work = [&](int32_t first) {
        for (int32_t i = 0; i < 200; i++) {
            const auto bank = static_cast<size_t>(i % 3);
            const std::vector<int32_t> experts{(first + i) % 16, (first + i + 1) % 16};
            const auto leases = acquire(bank, experts, true);
            for (size_t l = 0; l < leases.size(); l++) wrong += !holds(leases[l], bank, experts[l]);
        }
    };
    std::vector<std::thread> threads;
    for (int32_t t = 0; t < 4; t++) threads.emplace_back(work, 5 * t);
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(wrong, 0);
    const ExpertCounters all = store_->counters();
    EXPECT_EQ(all.uses, 4u * 200 * 2);
    EXPECT_EQ(all.misses, 3u * 16);
    EXPECT_EQ(all.hits + all.joined + all.misses, all.uses);
    EXPECT_EQ(store_->drive().reads, all.misses);
}

TEST_F(ExpertStoreTest, WhatIsLeasedStays) {
    for (const ReplacementPolicy policy :
         {ReplacementPolicy::lru, ReplacementPolicy::lfu, ReplacementPolicy::router}) {
        open(kLeast, policy);
        auto leased = acquire(0, {1, 4, 9, 14});
        ASSERT_EQ(leased.size(), 4u);
        for (int32_t round = 0; round < 3; round++) {
            for (size_t bank = 0; bank < banks(); bank++) {
                for (int32_t e = 0; e < kExperts; e += 4) use(bank, {e, e + 1, e + 2, e + 3});
            }
        }
        EXPECT_TRUE(holds(leased[0], 0, 1) && holds(leased[1], 0, 4) && holds(leased[2], 0, 9) &&
                    holds(leased[3], 0, 14));
        // All slots leased: nobody gets one, and of three wanted there is one for the first only.
        auto others = acquire(1, {0, 1, 2});
        EXPECT_EQ(others.size(), 3u);
        EXPECT_EQ(acquire(2, {7, 8, 9}).size(), 1u);
        others.push_back(std::move(acquire(2, {7})[0]));
        EXPECT_TRUE(acquire(2, {8}).empty());
        EXPECT_EQ(acquire(2, {7, 8}).size(), 1u) << "what is here needs no slot";
        store_->expect(5, std::vector<int32_t>{1, 2});
        EXPECT_EQ(store_->counters(5).ahead_reads, 0u) << "a guess has no slot to spare";
    }
}

TEST_F(ExpertStoreTest, WhoNeedsASlotWaitsForOne) {
    open(kLeast);
    auto all = acquire(0, {0, 1, 2, 3, 4, 5, 6, 7});
    ASSERT_EQ(all.size(), 8u);
    std::vector<Lease> got;
    std::thread other([&] { got = acquire(1, {3, 4}, true); });
    all.clear();
    other.join();
    ASSERT_GE(got.size(), 1u);
    EXPECT_TRUE(holds(got[0], 1, 3));
    got.clear();
    // Reads that nobody leases end by themselves, and their slots are free then.
    open(2 * kLeast);
    drive_->hold();
    std::vector<int64_t> keys(kLeast);
    std::iota(keys.begin(), keys.end(), 16);
    store_->warm(std::vector<uint32_t>(banks() * kExperts, 1), keys);
    auto rest = acquire(0, {0, 1, 2, 3, 4, 5, 6, 7});
    ASSERT_EQ(rest.size(), 8u);
    std::thread waiter([&] { got = acquire(2, {9}, true); });
    drive_->release();
    waiter.join();
    EXPECT_TRUE(holds(got.at(0), 2, 9));
}

/// What is here is leased in the midst of a call, after the slots to fill were looked for.
TEST_F(ExpertStoreTest, WhatTheSameCallHasLeasedIsNotFilled) {
    open(kLeast);
    for (int32_t expert = 0; expert < 4; expert++) use(0, {expert});
    use(1, {0, 1, 2, 3});
    const auto leases = acquire(0, {8, 1, 9});  // room is made of 0, then of 2
    ASSERT_EQ(leases.size(), 3u);
    EXPECT_TRUE(holds(leases[0], 0, 8));
    EXPECT_TRUE(holds(leases[1], 0, 1));
    EXPECT_TRUE(holds(leases[2], 0, 9));
}

TEST_F(ExpertStoreTest, AFailedReadIsToldAndReadAgain) {
    open(kLeast);
    drive_->break_down(true);
    {
        auto first = acquire(2, {11}), second = acquire(2, {11});
        for (const auto* lease : {&first[0], &second[0]}) {
            const auto view = lease->view();
            ASSERT_FALSE(view);
            EXPECT_EQ(view.error().kind, ErrorKind::io);
            const container::BankEntry& bank = container().manifest().banks[2];
            const std::string text = view.error().text();
            EXPECT_EQ(text.find("layer " + std::to_string(bank.layer) + " expert 11: "), 0u) << text;
            EXPECT_NE(text.find(bank.file), std::string::npos) << text;
        }
    }
    EXPECT_FALSE(is_here(2, 11));
    drive_->break_down(false);
    EXPECT_TRUE(holds(acquire(2, {11})[0], 2, 11));
    EXPECT_TRUE(is_here(2, 11));
}

TEST_F(ExpertStoreTest, AReadAheadThatFailedIsReadAgain) {
    open(3 * kLeast);
    drive_->break_down(true);
    store_->expect(2, std::vector<int32_t>{11});
    store_->warm(std::vector<uint32_t>(banks() * kExperts, 1), std::vector<int64_t>{3 * kExperts + 7});
    wait_until_landed(2);
    drive_->break_down(false);
    use(2, {11, 12});
    use(3, {7, 8});
    EXPECT_EQ(store_->counters(3).misses, 2u) << "what failed was not there";
}

TEST_F(ExpertStoreTest, OrderPutsFirstWhatIsHereThenFollowsTheFile) {
    open(kLeast);
    const auto by_place = [&](int32_t a, int32_t b) {
        return container().expert_entry(0, a).offset < container().expert_entry(0, b).offset;
    };
    std::vector<int32_t> experts{13, 2, 8, 5, 0, 11};
    store_->order(0, experts);
    EXPECT_TRUE(std::is_sorted(experts.begin(), experts.end(), by_place));
    use(0, {8, 13});
    experts = {0, 2, 5, 8, 11, 13};
    store_->order(0, experts);
    EXPECT_EQ(std::set<int32_t>(experts.begin(), experts.begin() + 2), (std::set<int32_t>{8, 13}));
    EXPECT_TRUE(std::is_sorted(experts.begin() + 2, experts.end(), by_place));
    experts = {13, 2, 8, 5};
    model_.experts().order(0, experts);
    EXPECT_TRUE(std::is_sorted(experts.begin(), experts.end(), by_place)) << "mapped";
}

TEST_F(ExpertStoreTest, WarmingFillsEmptySlotsAndLeavesRoom) {
    open(kLeast + 6);
    const std::vector<uint32_t> uses(banks() * kExperts, 1);
    std::vector<int64_t> keys(20);
    std::iota(keys.begin(), keys.end(), 40);
    store_->warm(std::vector<uint32_t>(3, 1), keys);
    store_->warm(std::vector<uint32_t>(banks() * kExperts, 0), keys);
    EXPECT_EQ(resident(), 0) << "counts of another model, or of nothing";
    drive_->hold();
    store_->warm(uses, keys);
    EXPECT_EQ(resident(), 6);
    for (const int64_t key : std::span(keys).first(6)) {
        EXPECT_TRUE(is_here(static_cast<size_t>(key / kExperts), static_cast<int32_t>(key % kExperts)));
    }
    // While they are on their way a layer still gets what it needs.
    auto leases = acquire(0, {0, 1, 2, 3, 4, 5, 6, 7});
    EXPECT_EQ(leases.size(), 8u);
    drive_->release();
    for (int32_t i = 0; i < 8; i++) EXPECT_TRUE(holds(leases[static_cast<size_t>(i)], 0, i));
    leases.clear();
    wait_until_landed(14);
    store_->warm(uses, std::vector<int64_t>{150, 151, 152});
    EXPECT_EQ(resident(), kLeast + 6);
    EXPECT_FALSE(is_here(150 / kExperts, 150 % kExperts)) << "nothing is evicted for it";
    const ExpertCounters counters = store_->counters();
    EXPECT_EQ(counters.uses, 8u);
    EXPECT_EQ(counters.ahead_reads, 0u);
    EXPECT_EQ(counters.bytes, 14 * store_->slot_bytes());
}

TEST_F(ExpertStoreTest, ExpectationsAreReadOnceAndLetGo) {
    open(kLeast + 3);
    store_->expect(4, std::vector<int32_t>{1, 2, 3, 4});
    EXPECT_EQ(store_->counters(4).ahead_reads, 3u) << "a layer's choice must still find its slots";
    wait_until_landed(3);
    use(4, {2, 9});
    const ExpertCounters counters = store_->counters(4);
    EXPECT_EQ(counters.ahead_used, 1u);
    EXPECT_EQ(counters.misses, 1u);
    EXPECT_EQ(counters.hits + counters.joined, 1u);
    use(4, {2});
    EXPECT_EQ(store_->counters(4).ahead_used, 1u) << "chosen once";
    // Nothing stays pinned: all slots can be had.
    std::vector<int32_t> experts(kLeast + 3);
    std::iota(experts.begin(), experts.end(), 0);
    wait_until_landed(4);
    EXPECT_EQ(acquire(7, experts).size(), experts.size());
}

/// What has not begun when the router speaks is as if it had never been expected.
TEST_F(ExpertStoreTest, ExpectationsThatHaveNotBegunAreTakenBack) {
    constexpr int64_t kSpare = container::kSpareReadDepth;
    open(kLeast + kTopK);
    use(0, {0, 1, 2, 3});
    use(1, {0, 1, 2, 3});
    use(2, {0, 1, 2, 3});
    const int64_t before = resident();
    drive_->hold();
    const std::vector<int32_t> wanted{8, 9, 10, 11};
    store_->expect(4, wanted);
    EXPECT_EQ(store_->counters(4).ahead_reads, 4u);
    drive_->wait_for_started(static_cast<size_t>(12 + kSpare));
    store_->take_back_expected();
    EXPECT_EQ(store_->counters(4).ahead_reads, static_cast<uint64_t>(kSpare));
    EXPECT_EQ(store_->counters(4).bytes, kSpare * store_->slot_bytes());
    EXPECT_FALSE(is_here(4, 11));
    EXPECT_EQ(resident(), before) << "what was to make room is still there";
    // Another session wants one that waits: it becomes urgent and is not taken back.
    store_->expect(4, std::vector<int32_t>{12});
    auto joined = acquire(4, {12});
    store_->take_back_expected();
    drive_->release();
    EXPECT_TRUE(holds(joined.at(0), 4, 12));
    joined.clear();
    use(4, {11, 8});
    EXPECT_EQ(store_->counters(4).misses, 1u);
    EXPECT_EQ(store_->counters(4).ahead_used, 2u);
    for (size_t bank = 0; bank < 3; bank++) {
        for (int32_t expert = 0; expert < 4; expert++) {
            if (is_here(bank, expert)) use(bank, {expert});  // compares its bytes
        }
    }
}

TEST_F(ExpertStoreTest, CountersAddUp) {
    open(20, ReplacementPolicy::lfu);
    std::vector<uint32_t> expected(banks() * kExperts, 0);
    for (int32_t i = 0; i < 200; i++) {
        const auto bank = static_cast<size_t>(i) % banks();
        if (i % 3 == 0) store_->expect(bank, std::vector<int32_t>{i % 16, (i + 3) % 16});
        if (i % 2 == 0) wait_for_all_reads();
        const std::vector<int32_t> chosen{i % 16, (i * i + 1) % 16};
        if (chosen[0] == chosen[1]) continue;
        use(bank, chosen);
        for (const int32_t expert : chosen) expected[bank * kExperts + static_cast<size_t>(expert)]++;
    }
    ExpertCounters sum;
    for (size_t bank = 0; bank < banks(); bank++) {
        const ExpertCounters c = store_->counters(bank);
        EXPECT_EQ(c.hits + c.joined + c.misses, c.uses);
        EXPECT_LE(c.ahead_used, c.ahead_reads);
        sum += c;
    }
    const ExpertCounters all = store_->counters();
    EXPECT_EQ(std::memcmp(&sum, &all, sizeof all), 0);
    EXPECT_EQ(all.bytes, (all.misses + all.ahead_reads) * store_->slot_bytes());
    EXPECT_GT(all.hits + all.joined, 0u);
    EXPECT_GT(all.ahead_used, 0u);
    wait_for_all_reads();
    EXPECT_EQ(store_->drive().bytes, all.bytes);
    EXPECT_EQ(store_->use_counts(), expected);
    EXPECT_LE(resident(), 20);
    const ExpertCounters none = all - all;
    EXPECT_EQ(none.uses + none.hits + none.joined + none.misses + none.bytes + none.ahead_reads, 0u);
}

TEST_F(ExpertStoreTest, FewerSlotsKeepWhatIsNeeded) {
    open(40);
    for (size_t bank = 0; bank < 10; bank++) use(bank, {0, 1, 2, 3});
    auto leased = acquire(0, {0, 1, 2, 3});
    store_->limit_slots(0);
    EXPECT_EQ(store_->usable_slots(), kLeast);
    EXPECT_LE(resident(), kLeast + 4);
    for (int32_t i = 0; i < 4; i++) EXPECT_TRUE(holds(leased[static_cast<size_t>(i)], 0, i));
    leased.clear();
    EXPECT_LE(resident(), kLeast) << "the last lease takes its slot along";
    for (size_t bank = 0; bank < banks(); bank++) use(bank, {4, 5, 6, 7});
    EXPECT_LE(resident(), kLeast);
    store_->limit_slots(1000);
    EXPECT_EQ(store_->usable_slots(), 40);
    for (size_t bank = 0; bank < 10; bank++) use(bank, {0, 1, 2, 3});
    EXPECT_GT(resident(), 32);
}

TEST_F(ExpertStoreTest, AReadOnItsWayIsGivenBackOnceItHasLanded) {
    open(40);
    drive_->hold();
    std::vector<int64_t> keys(32);
    std::iota(keys.begin(), keys.end(), 16);
    store_->warm(std::vector<uint32_t>(banks() * kExperts, 1), keys);
    store_->limit_slots(0);
    drive_->release();
    wait_until_landed(32);
    use(0, {0, 1, 2, 3});
    EXPECT_LE(resident(), kLeast);
}

uint64_t anonymous_bytes() {
    std::ifstream status("/proc/self/status");
    for (std::string word; status >> word;) {
        uint64_t kilobytes = 0;
        if (word == "RssAnon:" && status >> kilobytes) return kilobytes * 1024;
    }
    return 0;
}

TEST(ExpertStoreMemory, FewerSlotsTakeLessMemory) {
    if (anonymous_bytes() == 0) GTEST_SKIP() << "this system does not tell RssAnon";
    // tiny-k3 with experts of 100 KiB, of which two a layer are stored: 192 slots are 20 MiB.
    test::TempDir directory;
    SynthOptions options;
    options.config_text =
        *container::read_text_file(std::string(WASTE_TEST_DATA) + "/tiny-k3/config.json", 1 << 20);
    for (const auto& [from, to] :
         {std::pair<std::string, std::string>{"\"moe_intermediate_size\": 32",
                                              "\"moe_intermediate_size\": 256"},
          {"\"routed_expert_hidden_size\": 64", "\"routed_expert_hidden_size\": 256"}}) {
        const size_t at = options.config_text.find(from);
        ASSERT_NE(at, std::string::npos);
        options.config_text.replace(at, from.size(), to);
    }
    options.config_place = "config.json";
    options.destination = directory.file("model.waste");
    options.unique_experts = 2;
    options.threads = 2;
    ASSERT_TRUE(synthesize(options, {}));
    auto model = Model::open(options.destination);
    ASSERT_TRUE(model);
    Arrangement arrangement;
    arrangement.experts.slots = 192;
    ASSERT_TRUE(model->arrange(arrangement));
    ExpertStore& store = model->experts();
    const uint64_t arena = 192 * store.slot_bytes();
    ASSERT_GT(arena, uint64_t{16} << 20);

    const uint64_t empty = anonymous_bytes();
    std::vector<int32_t> experts(16);
    std::iota(experts.begin(), experts.end(), 0);
    const auto fill = [&] {
        for (size_t bank = 0; bank < 12; bank++) {
            std::vector<Lease> leases(16);
            ASSERT_EQ(store.acquire(bank, experts, leases, true), 16u);
            for (const Lease& lease : leases) ASSERT_TRUE(lease.view());
        }
    };
    fill();
    const uint64_t full = anonymous_bytes();
    EXPECT_GT(full, empty + arena * 9 / 10);
    store.limit_slots(0);
    EXPECT_LT(anonymous_bytes(), full - arena * 9 / 10);
    store.limit_slots(96);
    fill();
    EXPECT_LT(anonymous_bytes(), full - arena * 4 / 10);
    store.limit_slots(192);
    fill();
    EXPECT_GT(anonymous_bytes(), empty + arena * 9 / 10);
}

}  // namespace
}  // namespace waste::engine
