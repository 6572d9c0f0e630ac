#include "engine/replacement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace waste::engine {
namespace {

constexpr int64_t kLayers = 3, kExperts = 8, kKeys = kLayers * kExperts;
constexpr ReplacementPolicy kPolicies[] = {ReplacementPolicy::lru, ReplacementPolicy::lfu,
                                           ReplacementPolicy::router};
constexpr ReplacementPolicy kEstimates[] = {ReplacementPolicy::lfu, ReplacementPolicy::router};

/// A token passes all layers and uses these keys.
void pass_token(Replacement& replacement, const std::vector<int64_t>& keys) {
    for (int64_t layer = 0; layer < kLayers; layer++) {
        replacement.on_layer(layer, 1);
        for (const int64_t key : keys) {
            if (key / kExperts == layer) replacement.on_use(key);
        }
    }
}

void pass_tokens(Replacement& replacement, int64_t count, const std::vector<int64_t>& keys) {
    for (int64_t i = 0; i < count; i++) pass_token(replacement, keys);
}

std::string name_of(const testing::TestParamInfo<ReplacementPolicy>& policy) {
    return std::string(replacement_name(policy.param));
}

TEST(ReplacementNames, GoBothWays) {
    for (const ReplacementPolicy policy : kPolicies) {
        EXPECT_EQ(replacement_from_name(replacement_name(policy)), policy);
    }
    for (const char* name : {"", "LRU", "lru ", "random"}) EXPECT_FALSE(replacement_from_name(name)) << name;
}

class ReplacementTest : public testing::TestWithParam<ReplacementPolicy> {
  protected:
    float value(int64_t key) const { return replacement_->value(key); }

    std::unique_ptr<Replacement> replacement_ = make_replacement(GetParam(), kLayers, kExperts);
};

/// Those that estimate chances.
class ChanceTest : public ReplacementTest {};

INSTANTIATE_TEST_SUITE_P(Policies, ReplacementTest, testing::ValuesIn(kPolicies), name_of);
INSTANTIATE_TEST_SUITE_P(Policies, ChanceTest, testing::ValuesIn(kEstimates), name_of);

TEST_P(ReplacementTest, ValuesAreFiniteFromTheStart) {
    for (int64_t key = 0; key < kKeys; key++) EXPECT_TRUE(std::isfinite(value(key))) << key;
    replacement_->expect(std::vector<float>(kKeys, 0));
    for (int64_t key = 0; key < kKeys; key++) EXPECT_TRUE(std::isfinite(value(key))) << key;
    pass_tokens(*replacement_, 20000, {});
    for (int64_t key = 0; key < kKeys; key++) EXPECT_TRUE(std::isfinite(value(key))) << key;
}

TEST_P(ReplacementTest, WhatWasNeverUsedGoesFirst) {
    pass_token(*replacement_, {5, kKeys - 1});
    pass_tokens(*replacement_, 500, {});
    for (int64_t key = 0; key < kKeys - 1; key++) {
        if (key != 5) {
            EXPECT_LT(value(key), value(5)) << key;
            EXPECT_LT(value(key), value(kKeys - 1)) << key;
        }
    }
}

TEST_P(ReplacementTest, OfTwoUsedOnceTheLaterStays) {
    pass_token(*replacement_, {1});
    pass_token(*replacement_, {2});
    EXPECT_LT(value(1), value(2));
    pass_tokens(*replacement_, 500, {});
    EXPECT_LT(value(1), value(2));
    pass_token(*replacement_, {1});
    EXPECT_GT(value(1), value(2));
}

TEST_P(ReplacementTest, BeforeTheFirstTokenTheExpectedStays) {
    std::vector<float> chances(kKeys, 0.1f);
    chances[3] = 0.6f;
    chances[4] = 0;
    replacement_->expect(chances);
    EXPECT_GT(value(3), value(0));
    EXPECT_GT(value(0), value(4));
    pass_token(*replacement_, {4});
    EXPECT_GT(value(4), value(0));
}

TEST_P(ReplacementTest, ABlockCountsItsUses) {
    replacement_->on_layer(0, 64);
    for (int i = 0; i < 40; i++) replacement_->on_use(1);
    for (int i = 0; i < 2; i++) replacement_->on_use(2);
    EXPECT_GT(value(1), value(7));
    EXPECT_GT(value(2), value(7));
    if (GetParam() != ReplacementPolicy::lru) {
        EXPECT_GT(value(1), value(2));
    }
}

TEST(LeastRecentlyUsedTest, IgnoresHowOften) {
    const auto replacement = make_replacement(ReplacementPolicy::lru, kLayers, kExperts);
    pass_tokens(*replacement, 10, {1});
    pass_token(*replacement, {2});
    EXPECT_LT(replacement->value(1), replacement->value(2));
}

TEST_P(ChanceTest, OftenBeatsLate) {
    pass_tokens(*replacement_, 50, {1});
    pass_token(*replacement_, {2});
    pass_tokens(*replacement_, 3, {});
    EXPECT_GT(value(1), value(2));
}

TEST_P(ChanceTest, TheLastTokenBeatsALittleOftener) {
    for (int i = 0; i < 20; i++) {
        pass_token(*replacement_, {1});
        pass_tokens(*replacement_, 9, {});
    }
    pass_token(*replacement_, {2});
    EXPECT_LT(value(1), value(2));
}

TEST_P(ChanceTest, OldCountsFade) {
    pass_tokens(*replacement_, 3, {1});
    pass_tokens(*replacement_, 1000, {});
    pass_token(*replacement_, {2});
    EXPECT_LT(value(1), value(2));
}

TEST_P(ChanceTest, OfTwoAsLikelyTheLayerThatRunsSoonerStays) {
    pass_tokens(*replacement_, 5, {0, kExperts, 2 * kExperts});
    replacement_->on_layer(0, 1);
    replacement_->on_use(0);
    EXPECT_GT(value(kExperts), value(2 * kExperts));
    replacement_->on_layer(1, 1);
    replacement_->on_use(kExperts);
    EXPECT_GT(value(2 * kExperts), value(0));
}

TEST_P(ChanceTest, ABlockIsWorthItsTokens) {
    const auto single = make_replacement(GetParam(), 1, kExperts),
               block = make_replacement(GetParam(), 1, kExperts);
    block->on_layer(0, 64);
    for (int i = 0; i < 64; i++) {
        single->on_layer(0, 1);
        single->on_use(1);
        block->on_use(1);
    }
    EXPECT_NEAR(single->value(1), block->value(1), 1e-3);
    single->on_layer(0, 1);
    block->on_layer(0, 1);
    EXPECT_NEAR(single->value(1), block->value(1), 1e-3);
}

class RouterTest : public testing::Test {
  protected:
    /// A token of one layer: scores, and the two highest chosen.
    void pass_scores(const std::vector<float>& scores) {
        replacement_->on_layer(0, 1);
        replacement_->on_use(0);
        replacement_->on_use(1);
        replacement_->on_scores(scores, std::vector<int32_t>{0, 1});
    }

    std::unique_ptr<Replacement> replacement_ = make_replacement(ReplacementPolicy::router, 1, 4);
};

TEST_F(RouterTest, OfTwoUnusedTheOneThatCameNearerStays) {
    pass_scores({0.9f, 0.8f, 0.1f, 0.7f});
    EXPECT_GT(replacement_->value(3), replacement_->value(2));
    EXPECT_GT(replacement_->value(1), replacement_->value(3));
}

TEST_F(RouterTest, OddScoresLeaveValuesFinite) {
    const float nan = std::numeric_limits<float>::quiet_NaN(), huge = std::numeric_limits<float>::infinity();
    for (const std::vector<float>& scores : {std::vector<float>{nan, nan, nan, nan},
                                             {0, 0, 0, 0},
                                             {huge, huge, huge, huge},
                                             {nan, 0.5f, huge, 0}}) {
        pass_scores(scores);
        for (int64_t key = 0; key < 4; key++) EXPECT_TRUE(std::isfinite(replacement_->value(key))) << key;
    }
}

TEST_F(RouterTest, OtherPoliciesDoNotListen) {
    const auto listening = make_replacement(ReplacementPolicy::lfu, 1, 4);
    listening->on_layer(0, 1);
    listening->on_use(0);
    const float before = listening->value(0);
    listening->on_scores(std::vector<float>{0.9f, 0.8f, 0.1f, 0.7f}, std::vector<int32_t>{0});
    EXPECT_EQ(listening->value(0), before);
}

}  // namespace
}  // namespace waste::engine
