#include "kernels/mla.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

struct Case {
    int64_t rank, rope_dim;
    std::vector<float> q_latent, q_rope, latent, rope;
    float scale;

    MlaQuery query(int64_t positions) const {
        return {q_latent.data(), q_rope.data(), latent.data(), rope.data(), positions, rank, rope_dim, scale};
    }
};

Case random_case(int64_t positions, int64_t rank, int64_t rope_dim, float scale, uint32_t seed) {
    test::Random random(seed);
    return {rank,
            rope_dim,
            random.normals(rank, 1.0f),
            random.normals(rope_dim, 1.0f),
            random.normals(positions * rank, 1.0f),
            random.normals(positions * rope_dim, 1.0f),
            scale};
}

std::vector<float> attend(const MlaQuery& query) {
    test::GuardedFloats scratch(kMlaBlock + query.rank);
    test::GuardedFloats out(query.rank);
    mla_attend(query, scratch.data(), out.data());
    EXPECT_TRUE(scratch.guards_intact());
    EXPECT_TRUE(out.guards_intact());
    return {out.values().begin(), out.values().end()};
}

void expect_near_oracle(const MlaQuery& query) {
    std::vector<double> scores;
    double score_size = 0.0;
    for (int64_t s = 0; s < query.positions; ++s) {
        double score = 0.0;
        double size = 0.0;
        const auto add = [&](const float* a, const float* b, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
                score += double{a[i]} * double{b[i]};
                size += std::abs(double{a[i]} * double{b[i]});
            }
        };
        add(query.q_latent, query.latent + s * query.rank, query.rank);
        add(query.q_rope, query.rope + s * query.rope_dim, query.rope_dim);
        scores.push_back(score * double{query.scale});
        score_size = std::max(score_size, size * double{query.scale});
    }
    const double maximum = *std::max_element(scores.begin(), scores.end());
    const double spread = maximum - *std::min_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores) sum += score = std::exp(score - maximum);
    const std::vector<float> out = attend(query);
    // A score is off by its chain of additions; that and the exponential's rounding are relative errors of a
    // weight. Weights enter numerator and denominator, and both are sums over a block and over the blocks.
    const auto chain = static_cast<double>(query.rank / 16 + query.rope_dim / 16 + 10);
    const auto additions =
        static_cast<double>(std::min(query.positions, kMlaBlock) + query.positions / kMlaBlock);
    const double weight_error = (chain * score_size + spread + 4.0) * test::kRounding;
    const double relative = 2.0 * weight_error + 2.0 * (additions + 6.0) * test::kRounding;
    for (int64_t c = 0; c < query.rank; ++c) {
        double expected = 0.0;
        double size = 0.0;
        for (int64_t s = 0; s < query.positions; ++s) {
            const double term =
                scores[static_cast<size_t>(s)] / sum * double{query.latent[s * query.rank + c]};
            expected += term;
            size += std::abs(term);
        }
        ASSERT_NEAR(out[static_cast<size_t>(c)], expected, 1.01 * relative * size) << "channel " << c;
    }
}

TEST(MlaTest, AgreesWithOracle) {
    for (const int64_t positions : {1, 2, 17, 255, 256, 257, 512, 700}) {
        for (const int64_t rank : {1, 15, 16, 33, 96}) {
            SCOPED_TRACE(testing::Message() << positions << " positions, rank " << rank);
            const Case c =
                random_case(positions, rank, rank % 20 + 1, 0.3f, static_cast<uint32_t>(positions + rank));
            expect_near_oracle(c.query(positions));
        }
    }
}

TEST(MlaTest, AgreesWithOracleAtTheModelsShape) {
    const Case c = random_case(300, 512, 64, 1.0f / std::sqrt(192.0f), 1);
    expect_near_oracle(c.query(300));
}

TEST(MlaTest, LargeScoresDoNotOverflow) {
    Case c = random_case(600, 8, 4, 1e4f, 2);
    // Position 400 wins by far and so is returned as it is.
    for (int64_t i = 0; i < 8; ++i)
        c.latent[static_cast<size_t>(400 * 8 + i)] = 20.0f * c.q_latent[static_cast<size_t>(i)];
    const std::vector<float> out = attend(c.query(600));
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], c.latent[400 * 8 + i]);
}

TEST(MlaTest, EqualPositionsAverage) {
    Case c = random_case(512, 16, 8, 0.1f, 3);
    for (size_t s = 1; s < 512; ++s) {
        std::copy_n(c.latent.begin(), 16, c.latent.begin() + static_cast<int64_t>(s) * 16);
        std::copy_n(c.rope.begin(), 8, c.rope.begin() + static_cast<int64_t>(s) * 8);
    }
    const std::vector<float> out = attend(c.query(512));
    for (size_t i = 0; i < 16; ++i)
        EXPECT_NEAR(out[i], c.latent[i], std::abs(c.latent[i]) * 520 * test::kRounding);
}

TEST(MlaTest, NanShows) {
    Case c = random_case(300, 16, 8, 0.1f, 4);
    c.rope[5] = std::nanf("");
    for (const float value : attend(c.query(300))) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace waste::kernels
