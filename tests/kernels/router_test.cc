#include "kernels/router.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <string>

#include "kernels/float16.h"
#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

struct Choice {
    std::vector<int32_t> ids;
    std::vector<float> weights;
    float margin;
};

/// Rounded once; infinities and NaN as they should be.
float sigmoid(float x) {
    return static_cast<float>(1.0 / (1.0 + std::exp(-double{x})));
}

std::vector<float> sigmoids(std::span<const float> logits) {
    std::vector<float> scores;
    for (const float logit : logits) scores.push_back(sigmoid(logit));
    return scores;
}

Choice choose(const RouterRule& rule, std::span<const float> logits, std::span<const float> bias) {
    Choice choice{std::vector<int32_t>(static_cast<size_t>(rule.top_k)),
                  std::vector<float>(static_cast<size_t>(rule.top_k)), 0.0f};
    const std::vector<float> scores = sigmoids(logits);
    test::GuardedFloats scratch(rule.experts);
    choice.margin =
        route(rule, scores.data(), bias.data(), scratch.data(), choice.ids.data(), choice.weights.data());
    EXPECT_TRUE(scratch.guards_intact());
    return choice;
}

void expect_golden(const std::string& name, bool renormalize, float scaling_factor) {
    const test::GoldenFile& goldens = test::kernel_goldens();
    const auto logits = goldens.f32("router." + name + ".logits");
    const auto bias = goldens.f32("router." + name + ".bias");
    const auto ids = goldens.i32("router." + name + ".ids");
    const auto weights = goldens.f32("router." + name + ".weights");
    const RouterRule rule{logits.dim(1), ids.dim(1), renormalize, scaling_factor};
    for (int64_t row = 0; row < logits.dim(0); ++row) {
        SCOPED_TRACE(row);
        const Choice choice = choose(rule, logits.row(row, rule.experts), bias.values);
        const auto expected = ids.row(row, rule.top_k);
        EXPECT_EQ(choice.ids, std::vector<int32_t>(expected.begin(), expected.end()));
        EXPECT_LT(test::relative_error(choice.weights, weights.row(row, rule.top_k)), 5e-6);
    }
}

TEST(RouterTest, AgreesWithBiasedGolden) {
    expect_golden("biased", true, 2.446f);
}
TEST(RouterTest, AgreesWithPlainGolden) {
    expect_golden("plain", true, 1.0f);
}

TEST(RouterTest, AgreesWithAStableSort) {
    test::Random random(1);
    const RouterRule rule{896, 16, true, 1.0f};
    std::vector<int32_t> order(896);
    for (int round = 0; round < 50; ++round) {
        SCOPED_TRACE(round);
        // Coarse logits, so that ties are common.
        std::vector<float> logits = random.normals(896, 2.0f);
        for (float& logit : logits) logit = std::nearbyint(logit * 8.0f) / 8.0f;
        const std::vector<float> bias =
            round % 2 == 0 ? std::vector<float>(896, 0.25f) : random.normals(896, 0.1f);
        std::vector<float> score(896);
        for (size_t e = 0; e < 896; ++e) score[e] = sigmoid(logits[e]) + bias[e];
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
            return score[static_cast<size_t>(a)] > score[static_cast<size_t>(b)];
        });
        const Choice choice = choose(rule, logits, bias);
        EXPECT_EQ(choice.ids, std::vector<int32_t>(order.begin(), order.begin() + 16));
        const auto at_rank = [&](size_t rank) { return score[static_cast<size_t>(order[rank])]; };
        EXPECT_EQ(choice.margin, at_rank(15) - at_rank(16));
        EXPECT_NEAR(std::accumulate(choice.weights.begin(), choice.weights.end(), 0.0), 1.0,
                    40 * test::kRounding);
    }
}

TEST(RouterTest, TiesGoToTheLowerIndex) {
    const RouterRule rule{8, 3, true, 1.0f};
    const Choice choice = choose(rule, std::vector<float>(8, 0.7f), std::vector<float>(8, 0.0f));
    EXPECT_EQ(choice.ids, (std::vector<int32_t>{0, 1, 2}));
    EXPECT_EQ(choice.margin, 0.0f);
}

TEST(RouterTest, BiasesBelowBf16PrecisionDecide) {
    // 64 equal logits; biases around 3 that differ by 2^-20, all one value in bf16.
    const RouterRule rule{64, 4, true, 1.0f};
    const std::vector<float> logits(64, 0.3f);
    std::vector<float> bias(64);
    for (size_t e = 0; e < 64; ++e) bias[e] = 3.0f + static_cast<float>(e * 37 % 64) * 0x1p-20f;
    for (const float value : bias) ASSERT_EQ(f32_to_bf16(value), f32_to_bf16(3.0f));
    const Choice choice = choose(rule, logits, bias);
    for (size_t rank = 0; rank < 4; ++rank) {
        EXPECT_EQ(static_cast<size_t>(choice.ids[rank]) * 37 % 64, 63 - rank) << "rank " << rank;
    }
    EXPECT_GT(choice.margin, 0.0f);
}

TEST(RouterTest, TheBiasChoosesButDoesNotWeigh) {
    const RouterRule rule{4, 2, true, 1.0f};
    const Choice choice = choose(rule, std::vector<float>{2.0f, 2.0f, -1.0f, -1.0f},
                                 std::vector<float>{0.0f, -5.0f, 3.0f, 0.0f});
    EXPECT_EQ(choice.ids, (std::vector<int32_t>{2, 0}));
    const double low = 1.0 / (1.0 + std::exp(1.0));
    const double high = 1.0 / (1.0 + std::exp(-2.0));
    EXPECT_NEAR(choice.weights[0], low / (low + high), 1e-6);
    EXPECT_NEAR(choice.weights[1], high / (low + high), 1e-6);
}

TEST(RouterTest, WeightsFollowTheRule) {
    const std::vector<float> logits{0.0f, 1.0f, -1.0f};
    const std::vector<float> bias(3, 0.0f);
    const float best = sigmoid(1.0f);
    EXPECT_EQ(choose({3, 2, false, 1.5f}, logits, bias).weights[0], best * 1.5f) << "not renormalized";
    EXPECT_EQ(choose({3, 1, true, 2.0f}, logits, bias).weights[0], best * 2.0f)
        << "one expert keeps its score";
    const Choice all = choose({3, 3, true, 1.0f}, logits, bias);
    EXPECT_EQ(all.ids, (std::vector<int32_t>{1, 0, 2}));
    EXPECT_EQ(all.margin, std::numeric_limits<float>::infinity());
}

TEST(RouterTest, VanishingScoresGiveZerosNotNan) {
    const Choice choice =
        choose({4, 2, true, 1.0f}, std::vector<float>(4, -200.0f), std::vector<float>(4, 0.0f));
    for (const float weight : choice.weights) EXPECT_FALSE(std::isnan(weight));
}

TEST(RouterTest, NanLosesAgainstEveryNumber) {
    const float nan = std::nanf("");
    const float infinity = std::numeric_limits<float>::infinity();
    const std::vector<float> bias(5, 0.0f);
    const RouterRule rule{5, 3, true, 1.0f};
    const Choice some = choose(rule, std::vector<float>{nan, -infinity, nan, 0.0f, -3.0f}, bias);
    EXPECT_EQ(some.ids, (std::vector<int32_t>{3, 4, 1}));
    for (const float weight : some.weights) EXPECT_FALSE(std::isnan(weight));

    const Choice none = choose(rule, std::vector<float>(5, nan), bias);
    EXPECT_EQ(none.ids, (std::vector<int32_t>{0, 1, 2})) << "distinct and in range";
    const Choice few = choose(rule, std::vector<float>{nan, nan, nan, nan, 1.0f}, bias);
    EXPECT_EQ(few.ids, (std::vector<int32_t>{4, 0, 1}));
}

}  // namespace
}  // namespace waste::kernels
