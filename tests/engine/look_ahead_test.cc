// Guesses are read where they have been right, and nowhere else.
#include "engine/look_ahead.h"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

#include "tests/support/store_test.h"

namespace waste::engine {
namespace {

constexpr int kMany = 60;  ///< more than the averages remember

class LookAheadTest : public test::StoreTest {
  protected:
    void SetUp() override { open(kSlots); }

    /// Leaves none of the bank's experts in memory.
    void flush() {
        for (const size_t bank : {size_t{5}, size_t{6}}) {
            for (int32_t e = 0; e < kExperts; e += 4) use(bank, {e, e + 1, e + 2, e + 3});
        }
    }
    /// What passes between a guess and the choice: far more than a read takes here.
    static void compute() { std::this_thread::sleep_for(std::chrono::milliseconds(1)); }
    /// A token for which `guess` was made and `chosen` came. Returns how many were read ahead.
    uint64_t step(const std::vector<int32_t>& guess, const std::vector<int32_t>& chosen) {
        const uint64_t before = store_->counters(kBank).ahead_reads;
        look_ahead_.begin(kBank, Guess::late, guess, *store_);
        wait_for_all_reads();
        compute();
        look_ahead_.settle(kBank, chosen, *store_);
        use(kBank, chosen);
        return store_->counters(kBank).ahead_reads - before;
    }
    uint64_t step_from_the_drive(const std::vector<int32_t>& guess, const std::vector<int32_t>& chosen) {
        flush();
        return step(guess, chosen);
    }

    static constexpr size_t kBank = 2;
    static constexpr int64_t kSlots = kLeast + kTopK;
    const std::vector<int32_t> one_ = {0, 1, 2, 3}, another_ = {4, 5, 6, 7};
    LookAhead look_ahead_{12, kTopK};
};

TEST_F(LookAheadTest, NothingIsReadBeforeItHasProvedRight) {
    EXPECT_EQ(step_from_the_drive(one_, one_), 0u);
    for (int i = 0; i < kMany; i++) EXPECT_EQ(step_from_the_drive(one_, another_), 0u);
}

TEST_F(LookAheadTest, WhatIsSureIsReadWhole) {
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    const ExpertCounters before = store_->counters(kBank);
    for (int i = 0; i < 5; i++) EXPECT_EQ(step_from_the_drive(one_, one_), 4u);
    const ExpertCounters since = store_->counters(kBank) - before;
    EXPECT_EQ(since.misses, 0u);
    EXPECT_EQ(since.ahead_used, 20u);
    EXPECT_EQ(since.bytes, 20 * store_->slot_bytes());
}

TEST_F(LookAheadTest, WhatTurnsWrongIsReadNoMore) {
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    EXPECT_EQ(step_from_the_drive(one_, another_), 4u);
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, another_);
    const uint64_t reads = store_->counters(kBank).ahead_reads;
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, another_);
    EXPECT_EQ(store_->counters(kBank).ahead_reads, reads);
    // Looking at what would have been right goes on, so that it may be read again.
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    EXPECT_EQ(step_from_the_drive(one_, one_), 4u);
}

TEST_F(LookAheadTest, EachRankIsJudgedAlone) {
    const std::vector<int32_t> guess = {0, 12, 1, 13};
    for (int i = 0; i < kMany; i++) step_from_the_drive(guess, one_);
    EXPECT_EQ(step_from_the_drive(guess, one_), 2u);
    flush();
    look_ahead_.begin(kBank, Guess::late, guess, *store_);
    std::vector<int32_t> experts = guess;
    store_->keep_absent(kBank, experts);
    EXPECT_EQ(experts, (std::vector<int32_t>{-1, 12, -1, 13}));
}

/// The early guess has to be right more often: the late one is still to come.
TEST_F(LookAheadTest, EarlyAndLateAreJudgedApart) {
    const auto early = [&](const std::vector<int32_t>& chosen) {
        flush();
        const uint64_t before = store_->counters(kBank).ahead_reads;
        look_ahead_.begin(kBank, Guess::early, one_, *store_);
        const uint64_t reads = store_->counters(kBank).ahead_reads - before;
        wait_for_all_reads();
        look_ahead_.begin(kBank, Guess::late, another_, *store_);
        compute();
        look_ahead_.settle(kBank, chosen, *store_);
        use(kBank, chosen);
        return reads;
    };
    for (int i = 0; i < kMany; i++) early(one_);
    EXPECT_EQ(early(one_), 4u);
    // Right three times in five is enough for neither, and what the late one proved is its own.
    for (int i = 0; i < kMany; i++) early(i % 5 < 2 ? another_ : one_);
    EXPECT_EQ(early(one_), 0u);
}

/// Where a read takes much longer than the router, only what is all but certain is worth it.
TEST_F(LookAheadTest, ASlowDriveAsksForMore) {
    const auto step = [&](const std::vector<int32_t>& chosen) {
        flush();
        const uint64_t before = store_->counters(kBank).ahead_reads;
        drive_->hold();
        look_ahead_.begin(kBank, Guess::late, one_, *store_);
        const uint64_t reads = store_->counters(kBank).ahead_reads - before;
        look_ahead_.settle(kBank, chosen, *store_);
        const std::vector<float> scores(kExperts, 0.5f);
        store_->learn(kBank, 1, scores, chosen);
        auto leases = acquire(kBank, chosen);
        std::this_thread::sleep_for(std::chrono::milliseconds(40));
        drive_->release();
        for (const Lease& lease : leases) EXPECT_TRUE(lease.view());
        return reads;
    };
    for (int i = 0; i < kMany / 2; i++) step(i % 8 == 0 ? another_ : one_);
    EXPECT_EQ(step(one_), 0u) << "right seven times in eight";
}

TEST_F(LookAheadTest, EachBankIsJudgedAlone) {
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    flush();
    look_ahead_.begin(kBank + 1, Guess::late, one_, *store_);
    EXPECT_EQ(store_->counters(kBank + 1).ahead_reads, 0u);
}

TEST_F(LookAheadTest, WhatIsHereIsNeitherReadNorLearnedFrom) {
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    for (int i = 0; i < kMany; i++) EXPECT_EQ(step(one_, one_), 0u);
    use(kBank, one_);
    for (int i = 0; i < kMany; i++) {
        look_ahead_.begin(kBank, Guess::late, one_, *store_);
        look_ahead_.settle(kBank, another_, *store_);
    }
    EXPECT_EQ(step_from_the_drive(one_, one_), 4u) << "those guesses would have read nothing";
}

TEST_F(LookAheadTest, ABankThatMissesNothingIsNotGuessedAt) {
    EXPECT_TRUE(look_ahead_.worth_guessing(kBank)) << "nothing is known yet";
    use(kBank, one_);
    for (int i = 0; i < kMany; i++) {
        look_ahead_.settle(kBank, one_, *store_);
        use(kBank, one_);
    }
    EXPECT_FALSE(look_ahead_.worth_guessing(kBank));
    EXPECT_TRUE(look_ahead_.worth_guessing(kBank + 1));
    flush();
    use(kBank, one_);
    look_ahead_.settle(kBank, one_, *store_);
    EXPECT_TRUE(look_ahead_.worth_guessing(kBank));
    // What was read ahead would have been missed.
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    for (int i = 0; i < kMany; i++) {
        EXPECT_EQ(step_from_the_drive(one_, one_), 4u);
        EXPECT_TRUE(look_ahead_.worth_guessing(kBank));
    }
}

TEST_F(LookAheadTest, SettlingWithoutAGuessLearnsNothing) {
    for (int i = 0; i < kMany; i++) step_from_the_drive(one_, one_);
    for (int i = 0; i < kMany; i++) look_ahead_.settle(kBank, another_, *store_);
    EXPECT_EQ(step_from_the_drive(one_, one_), 4u);
}

}  // namespace
}  // namespace waste::engine
