#include "engine/replacement.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace waste::engine {
namespace {

constexpr int64_t kLayers = 3, kExperts = 8;
constexpr ReplacementPolicy kPolicies[] = {ReplacementPolicy::lru, ReplacementPolicy::lfu};

void pass_tokens(Replacement& replacement, int64_t count) {
    for (int64_t i = 0; i < count; i++) replacement.on_token();
}

TEST(ReplacementNames, GoBothWays) {
    for (const ReplacementPolicy policy : kPolicies) {
        EXPECT_EQ(replacement_from_name(replacement_name(policy)), policy);
    }
    for (const char* name : {"", "LRU", "lru ", "random"}) EXPECT_FALSE(replacement_from_name(name)) << name;
}

class ReplacementTest : public testing::TestWithParam<ReplacementPolicy> {
  protected:
    std::unique_ptr<Replacement> replacement_ = make_replacement(GetParam(), kLayers, kExperts);
};

INSTANTIATE_TEST_SUITE_P(Policies, ReplacementTest, testing::ValuesIn(kPolicies),
                         [](const auto& policy) { return std::string(replacement_name(policy.param)); });

TEST_P(ReplacementTest, WhatWasNeverUsedGoesFirst) {
    replacement_->on_use(5);
    pass_tokens(*replacement_, 100000);
    replacement_->on_use(kLayers * kExperts - 1);
    for (int64_t key = 0; key < kLayers * kExperts; key++) {
        const bool used = key == 5 || key == kLayers * kExperts - 1;
        EXPECT_EQ(std::isinf(replacement_->value(key)), !used) << key;
        EXPECT_FALSE(std::isnan(replacement_->value(key))) << key;
    }
}

TEST_P(ReplacementTest, OfTwoUsedOnceTheLaterStays) {
    replacement_->on_use(1);
    replacement_->on_token();
    replacement_->on_use(2);
    EXPECT_LT(replacement_->value(1), replacement_->value(2));
    pass_tokens(*replacement_, 1000000);
    EXPECT_LT(replacement_->value(1), replacement_->value(2));
    replacement_->on_use(1);
    EXPECT_GT(replacement_->value(1), replacement_->value(2));
}

TEST_P(ReplacementTest, TimeAndOtherKeysLeaveAValueAlone) {
    replacement_->on_use(3);
    const float before = replacement_->value(3);
    replacement_->on_token();
    replacement_->on_use(4);
    EXPECT_EQ(replacement_->value(3), before);
}

TEST(LeastRecentlyUsedTest, IgnoresHowOften) {
    const auto replacement = make_replacement(ReplacementPolicy::lru, kLayers, kExperts);
    for (int i = 0; i < 10; i++) replacement->on_use(1);
    replacement->on_token();
    replacement->on_use(2);
    EXPECT_LT(replacement->value(1), replacement->value(2));
}

TEST(LeastFrequentlyUsedTest, OftenBeatsLate) {
    const auto replacement = make_replacement(ReplacementPolicy::lfu, kLayers, kExperts);
    for (int i = 0; i < 3; i++) {
        replacement->on_use(1);
        replacement->on_token();
    }
    replacement->on_use(2);
    EXPECT_GT(replacement->value(1), replacement->value(2));
}

TEST(LeastFrequentlyUsedTest, OldCountsFade) {
    const auto replacement = make_replacement(ReplacementPolicy::lfu, kLayers, kExperts);
    for (int i = 0; i < 3; i++) replacement->on_use(1);
    pass_tokens(*replacement, 1000);
    replacement->on_use(2);
    EXPECT_LT(replacement->value(1), replacement->value(2));
}

}  // namespace
}  // namespace waste::engine
