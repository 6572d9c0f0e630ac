#include "engine/text/sampler.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <set>

namespace waste::engine {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
constexpr int kDraws = 100'000;

using Logits = std::vector<float>;

Sampler make(const SamplerOptions& options, size_t vocab_size) {
    auto sampler = Sampler::create(options, static_cast<int64_t>(vocab_size));
    EXPECT_TRUE(sampler) << sampler.error().text();
    return *sampler;
}

int32_t sample_once(const SamplerOptions& options, const Logits& logits,
                    const std::vector<int32_t>& recent = {}) {
    const auto id = make(options, logits.size()).sample(logits, recent, 0);
    EXPECT_TRUE(id) << id.error().text();
    return id.value_or(-1);
}

/// Share of each token in many draws.
std::map<int32_t, double> shares(const SamplerOptions& options, const Logits& logits,
                                 const std::vector<int32_t>& recent = {}) {
    Sampler sampler = make(options, logits.size());
    std::map<int32_t, double> counts;
    for (int i = 0; i < kDraws; ++i) counts[sampler.sample(logits, recent, i).value()] += 1.0;
    for (auto& [id, count] : counts) count /= kDraws;
    return counts;
}

/// Holds the shares against exact probabilities, five standard deviations wide: a fixed seed, so this either
/// always passes or never.
void expect_distribution(const std::map<int32_t, double>& found, const std::map<int32_t, double>& expected) {
    for (const auto& [id, share] : found) EXPECT_TRUE(expected.count(id)) << "token " << id << " was drawn";
    for (const auto& [id, probability] : expected) {
        const double deviation = std::sqrt(probability * (1.0 - probability) / kDraws);
        const auto share = found.find(id);
        EXPECT_NEAR(share == found.end() ? 0.0 : share->second, probability, 5.0 * deviation)
            << "token " << id;
    }
}

/// Logits whose softmax these probabilities are.
Logits logits_of(const std::vector<double>& probabilities) {
    Logits logits;
    for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p)));
    return logits;
}

const std::vector<double> kFour = {0.1, 0.4, 0.2, 0.3};

SamplerOptions with(float temperature) {
    SamplerOptions options;
    options.temperature = temperature;
    options.seed = 7;
    return options;
}

TEST(Sampler, IsGreedyAtTemperatureZero) {
    EXPECT_EQ(sample_once(with(0), {1, 5, 3}), 1);
    EXPECT_EQ(sample_once(with(0), {1, 5, 5}), 1) << "the lower id on ties";
    EXPECT_EQ(sample_once(with(0), {-3, -1, -2}), 1);
    EXPECT_EQ(sample_once(with(0), {kNan, -5, kNan}), 1);
    EXPECT_EQ(sample_once(with(0), {5, kInfinity, 6}), 1);
}

TEST(Sampler, FollowsTheDistribution) {
    expect_distribution(shares(with(1), logits_of(kFour)), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
}

TEST(Sampler, TemperatureSharpensAndFlattens) {
    // At temperature 1/2 probabilities are squared, at 2 their root is taken, then normalized.
    expect_distribution(shares(with(0.5f), logits_of(kFour)),
                        {{0, 0.01 / 0.3}, {1, 0.16 / 0.3}, {2, 0.04 / 0.3}, {3, 0.09 / 0.3}});
    double total = 0.0;
    for (const double p : kFour) total += std::sqrt(p);
    expect_distribution(shares(with(2), logits_of(kFour)), {{0, std::sqrt(0.1) / total},
                                                            {1, std::sqrt(0.4) / total},
                                                            {2, std::sqrt(0.2) / total},
                                                            {3, std::sqrt(0.3) / total}});
    EXPECT_EQ(sample_once(with(1e-30f), {1, 5, 3}), 1) << "no overflow";
}

TEST(Sampler, TopKKeepsTheLargest) {
    SamplerOptions options = with(1);
    options.top_k = 2;
    expect_distribution(shares(options, logits_of(kFour)), {{1, 4.0 / 7}, {3, 3.0 / 7}});
    options.top_k = 1;
    expect_distribution(shares(options, {1, 2, 2}), {{1, 1.0}});
    options.top_k = 100;
    expect_distribution(shares(options, logits_of(kFour)), {{0, 0.1}, {1, 0.4}, {2, 0.2}, {3, 0.3}});
}

TEST(Sampler, TopPKeepsTheFewestThatSuffice) {
    SamplerOptions options = with(1);
    options.top_p = 0.65f;
    expect_distribution(shares(options, logits_of(kFour)), {{1, 4.0 / 7}, {3, 3.0 / 7}});
    options.top_p = 0.75f;
    expect_distribution(shares(options, logits_of(kFour)), {{1, 4.0 / 9}, {3, 3.0 / 9}, {2, 2.0 / 9}});
    options.top_p = 1e-6f;
    expect_distribution(shares(options, logits_of(kFour)), {{1, 1.0}});
}

TEST(Sampler, TopPCountsWhatTopKLeft) {
    SamplerOptions options = with(1);
    options.top_k = 2;
    options.top_p = 0.55f;  // token 1 alone has 4/7 = 0.571 of the two, but 0.4 of all
    expect_distribution(shares(options, logits_of(kFour)), {{1, 1.0}});
}

TEST(Sampler, MinPKeepsWhatIsNearTheLargest) {
    SamplerOptions options = with(1);
    options.min_p = 0.6f;
    expect_distribution(shares(options, logits_of(kFour)), {{1, 4.0 / 7}, {3, 3.0 / 7}});
    options.min_p = 1.0f;
    expect_distribution(shares(options, logits_of(kFour)), {{1, 1.0}});
}

TEST(Sampler, PenalizesEachRecentTokenOnce) {
    SamplerOptions options = with(0);
    options.repeat_penalty = 2.0f;
    EXPECT_EQ(sample_once(options, {3, 4}, {1}), 0);                 // 4 becomes 2
    EXPECT_EQ(sample_once(options, {1.5f, 4}, {1, 1, 1}), 1);        // not 0.5
    EXPECT_EQ(sample_once(options, {-3, -2}, {1}), 0);               // -2 becomes -4
    EXPECT_EQ(sample_once(options, {3, 4}, {-1, 2, INT32_MAX}), 1);  // ids outside are ignored
    options.repeat_window = 2;
    EXPECT_EQ(sample_once(options, {3, 4}, {1, 0, 0}), 1) << "outside the window";
    options.repeat_window = 0;
    EXPECT_EQ(sample_once(options, {3, 4}, {1, 1}), 1);
}

TEST(Sampler, NeverChoosesNanOrMinusInfinity) {
    for (const float temperature : {0.0f, 1.0f}) {
        EXPECT_EQ(sample_once(with(temperature), {kNan, -kInfinity, -1e30f, kNan}), 2);
        for (const Logits& hopeless : {Logits{kNan, kNan}, Logits{-kInfinity, kNan}}) {
            const auto id = make(with(temperature), 2).sample(hopeless, {}, 0);
            ASSERT_FALSE(id);
            EXPECT_EQ(id.error().text(), "sampler: no logit is a number: the model's output is unusable");
        }
    }
    expect_distribution(shares(with(1), {kNan, 0, kNan, 0}), {{1, 0.5}, {3, 0.5}});
    expect_distribution(shares(with(1), {0, kInfinity, 5, kInfinity}), {{1, 0.5}, {3, 0.5}});
}

std::vector<int32_t> draw_many(const SamplerOptions& options, const Logits& logits, int64_t position) {
    Sampler sampler = make(options, logits.size());
    std::vector<int32_t> ids(20);
    for (int32_t& id : ids) id = sampler.sample(logits, {}, position++).value();
    return ids;
}

TEST(Sampler, DrawsByPosition) {
    const Logits logits(1000, 0.0f);
    const std::vector<int32_t> ids = draw_many(with(1), logits, 0);
    EXPECT_EQ(draw_many(with(1), logits, 0), ids);
    const std::vector<int32_t> later = draw_many(with(1), logits, 10);
    EXPECT_TRUE(std::equal(ids.begin() + 10, ids.end(), later.begin())) << "whatever was drawn before";
    SamplerOptions other = with(1);
    other.seed = 8;
    EXPECT_NE(draw_many(other, logits, 0), ids);
}

// The published first values of SplitMix64 from seed 1234567.
TEST(Sampler, DrawsFromSplitMix64) {
    SamplerOptions options = with(1);
    options.seed = 1234567;
    const Logits logits(1000, 0.0f);
    Sampler sampler = make(options, logits.size());
    int64_t position = 0;
    for (const uint64_t value : {6457827717110365317u, 3203168211198807973u, 9817491932198370423u}) {
        const auto expected = static_cast<int32_t>(static_cast<double>(value >> 11) * 0x1.0p-53 * 1000.0);
        EXPECT_EQ(sampler.sample(logits, {}, position++).value(), expected);
    }
}

TEST(Sampler, RefusesLogitsOfAnotherSize) {
    EXPECT_EQ(make(with(1), 3).sample(Logits{1, 2}, {}, 0).error().text(),
              "sampler: 2 logits for a vocabulary of 3");
}

TEST(SamplerOptions, AreChecked) {
    const auto error_of = [](auto change) {
        SamplerOptions options;
        change(options);
        const auto valid = validate(options);
        EXPECT_EQ(Sampler::create(options, 10).has_value(), valid.has_value());
        return valid ? std::string() : valid.error().text();
    };
    EXPECT_EQ(error_of([](SamplerOptions&) {}), "");
    for (const float bad : {-0.1f, kNan, kInfinity}) {
        EXPECT_EQ(error_of([&](SamplerOptions& o) { o.temperature = bad; }),
                  "temperature: must be a number from 0 (greedy) up");
    }
    for (const float bad : {0.0f, -1.0f, 1.1f, kNan}) {
        EXPECT_EQ(error_of([&](SamplerOptions& o) { o.top_p = bad; }),
                  "top_p: must be above 0 and at most 1 (off)");
    }
    for (const float bad : {-0.1f, 1.1f, kNan}) {
        EXPECT_EQ(error_of([&](SamplerOptions& o) { o.min_p = bad; }), "min_p: must be from 0 (off) to 1");
    }
    for (const float bad : {0.0f, -1.0f, kNan, kInfinity}) {
        EXPECT_EQ(error_of([&](SamplerOptions& o) { o.repeat_penalty = bad; }),
                  "repeat_penalty: must be a number above 0 (1 is off)");
    }
    EXPECT_EQ(error_of([](SamplerOptions& o) { o.top_k = -1; }), "top_k: must be 0 (off) or more");
    EXPECT_EQ(error_of([](SamplerOptions& o) { o.repeat_window = -1; }), "repeat_window: must be 0 or more");
    EXPECT_FALSE(Sampler::create({}, 0));
    EXPECT_FALSE(Sampler::create({}, int64_t{1} << 31));
}

}  // namespace
}  // namespace waste::engine
