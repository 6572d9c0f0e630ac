// f64 oracle -> scalar within derived bounds; scalar -> every tier bit for bit.
#include "kernels/mla.h"

#include <algorithm>
#include <cmath>

#include "tests/support/kernel_matrix.h"
#include "tests/support/tiers.h"

namespace waste::kernels {
namespace {

/// Some heads of one query and its cache; rows of q have a gap between them.
struct Case {
    int64_t positions, heads, rank, rope_dim;
    float scale;
    std::vector<float> q_latent, q_rope, latent, rope;

    static constexpr int64_t kGap = 3;
    MlaQuery query() const {
        return {q_latent.data(), rank + kGap, q_rope.data(), rope_dim + kGap, heads,
                latent.data(),   rope.data(), rank,          rope_dim,        scale};
    }
};

Case random_case(int64_t positions, int64_t heads, int64_t rank, int64_t rope_dim, float scale,
                 uint32_t seed) {
    test::Random random(seed);
    return {positions,
            heads,
            rank,
            rope_dim,
            scale,
            random.normals(heads * (rank + Case::kGap), 1.0f),
            random.normals(heads * (rope_dim + Case::kGap), 1.0f),
            random.normals(positions * rank, 1.0f),
            random.normals(positions * rope_dim, 1.0f)};
}

/// Some MlaPartial and its memory.
struct Partial {
    Partial(int64_t heads, int64_t rank) : maximum(heads), sum(heads), weighted(heads * rank) {}
    MlaPartial view() { return {maximum.data(), sum.data(), weighted.data()}; }
    bool guards_intact() const {
        return maximum.guards_intact() && sum.guards_intact() && weighted.guards_intact();
    }
    test::GuardedFloats maximum, sum, weighted;
};

/// All positions, span by span. [heads][rank]
std::vector<float> attend(const MlaKernels& kernels, const Case& c) {
    test::GuardedFloats scratch(mla_scratch_floats(c.rank));
    Partial all(c.heads, c.rank);
    for (int64_t begin = 0; begin < c.positions; begin += kMlaSpan) {
        const int64_t end = std::min(begin + kMlaSpan, c.positions);
        Partial next(c.heads, c.rank);
        kernels.attend(c.query(), begin, end, scratch.data(), begin == 0 ? all.view() : next.view());
        if (begin > 0) kernels.merge(c.heads, c.rank, next.view(), all.view());
        EXPECT_TRUE(next.guards_intact());
    }
    std::vector<float> out(static_cast<size_t>(c.heads * c.rank));
    kernels.finish(c.heads, c.rank, all.view(), out.data(), c.rank);
    EXPECT_TRUE(scratch.guards_intact());
    EXPECT_TRUE(all.guards_intact());
    return out;
}

void expect_near_oracle(const Case& c, int64_t head, std::span<const float> out) {
    std::vector<double> scores;
    double score_size = 0.0;
    for (int64_t s = 0; s < c.positions; ++s) {
        double score = 0.0;
        double size = 0.0;
        const auto add = [&](const float* a, const float* b, int64_t n) {
            for (int64_t i = 0; i < n; ++i) {
                score += double{a[i]} * double{b[i]};
                size += std::abs(double{a[i]} * double{b[i]});
            }
        };
        add(c.q_latent.data() + head * (c.rank + Case::kGap), c.latent.data() + s * c.rank, c.rank);
        add(c.q_rope.data() + head * (c.rope_dim + Case::kGap), c.rope.data() + s * c.rope_dim, c.rope_dim);
        scores.push_back(score * double{c.scale});
        score_size = std::max(score_size, size * double{c.scale});
    }
    const double maximum = *std::max_element(scores.begin(), scores.end());
    const double spread = maximum - *std::min_element(scores.begin(), scores.end());
    double sum = 0.0;
    for (double& score : scores) sum += score = std::exp(score - maximum);
    // A score is off by its chain of additions; that and the exponential's rounding are relative errors of a
    // weight. Weights enter numerator and denominator, and both are sums over a block and over the blocks.
    const auto chain = static_cast<double>(c.rank / 16 + c.rope_dim / 16 + 10);
    const auto additions = static_cast<double>(std::min(c.positions, kMlaBlock) + c.positions / kMlaBlock);
    const double weight_error = (chain * score_size + spread + 4.0) * test::kRounding;
    const double relative = 2.0 * weight_error + 2.0 * (additions + 6.0) * test::kRounding;
    for (int64_t i = 0; i < c.rank; ++i) {
        double expected = 0.0;
        double size = 0.0;
        for (int64_t s = 0; s < c.positions; ++s) {
            const double term =
                scores[static_cast<size_t>(s)] / sum * double{c.latent[static_cast<size_t>(s * c.rank + i)]};
            expected += term;
            size += std::abs(term);
        }
        ASSERT_NEAR(out[static_cast<size_t>(i)], expected, 1.01 * relative * size) << "channel " << i;
    }
}

void expect_near_oracle(const MlaKernels& kernels, const Case& c) {
    const std::vector<float> out = attend(kernels, c);
    for (int64_t h = 0; h < c.heads; ++h) {
        SCOPED_TRACE(testing::Message() << "head " << h);
        expect_near_oracle(c, h, std::span(out).subspan(static_cast<size_t>(h * c.rank)));
    }
}

class MlaTest : public test::TierTest {
  protected:
    static const MlaKernels& kernels() { return *GetParam().mla; }
};

TEST_P(MlaTest, AgreesWithOracle) {
    for (const int64_t positions : {1, 2, 17, 255, 256, 257, 700}) {
        for (const int64_t rank : {1, 15, 16, 33, 96}) {
            SCOPED_TRACE(testing::Message() << positions << " positions, rank " << rank);
            const int64_t heads = positions % kMlaHeads + 1;
            expect_near_oracle(kernels(), random_case(positions, heads, rank, rank % 20 + 1, 0.3f,
                                                      static_cast<uint32_t>(positions + rank)));
        }
    }
}

TEST_P(MlaTest, AgreesWithOracleAtTheModelsShape) {
    expect_near_oracle(kernels(), random_case(300, 8, 512, 64, 1.0f / std::sqrt(192.0f), 1));
}

TEST_P(MlaTest, AgreesWithOracleOverSpans) {
    expect_near_oracle(kernels(), random_case(kMlaSpan + 300, 2, 16, 8, 0.2f, 5));
}

TEST_P(MlaTest, EqualsScalarBitForBit) {
    for (const int64_t rank : {1, 15, 16, 40, 129, 512}) {
        for (const int64_t heads : {1, 2, 3, 4, 7, 8}) {
            SCOPED_TRACE(testing::Message() << heads << " heads, rank " << rank);
            const Case c = random_case(515, heads, rank, rank % 70 + 1, 0.1f, static_cast<uint32_t>(rank));
            EXPECT_EQ(test::first_difference(attend(kernels(), c), attend(*scalar().mla, c)), "");
        }
    }
}

TEST_P(MlaTest, AHeadDoesNotDependOnTheOthers) {
    const Case c = random_case(300, 7, 40, 20, 0.1f, 6);
    const std::vector<float> together = attend(kernels(), c);
    for (int64_t h = 0; h < c.heads; ++h) {
        Case alone = c;
        alone.heads = 1;
        alone.q_latent.erase(alone.q_latent.begin(), alone.q_latent.begin() + h * (c.rank + Case::kGap));
        alone.q_rope.erase(alone.q_rope.begin(), alone.q_rope.begin() + h * (c.rope_dim + Case::kGap));
        const auto expected = std::span(together).subspan(static_cast<size_t>(h * c.rank), 40);
        EXPECT_EQ(test::first_difference(attend(kernels(), alone), expected), "") << "head " << h;
    }
}

TEST_P(MlaTest, LargeScoresDoNotOverflow) {
    Case c = random_case(600, 1, 8, 4, 1e4f, 2);
    // Position 400 wins by far and so is returned as it is.
    for (size_t i = 0; i < 8; ++i) c.latent[400 * 8 + i] = 20.0f * c.q_latent[i];
    const std::vector<float> out = attend(kernels(), c);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(out[i], c.latent[400 * 8 + i]);
}

TEST_P(MlaTest, EqualPositionsAverage) {
    Case c = random_case(512, 1, 16, 8, 0.1f, 3);
    for (int64_t s = 1; s < 512; ++s) {
        std::copy_n(c.latent.begin(), 16, c.latent.begin() + s * 16);
        std::copy_n(c.rope.begin(), 8, c.rope.begin() + s * 8);
    }
    const std::vector<float> out = attend(kernels(), c);
    for (size_t i = 0; i < 16; ++i)
        EXPECT_NEAR(out[i], c.latent[i], std::abs(c.latent[i]) * 520 * test::kRounding);
}

TEST_P(MlaTest, NanShows) {
    Case c = random_case(300, 2, 16, 8, 0.1f, 4);
    c.rope[5] = std::nanf("");
    for (const float value : attend(kernels(), c)) EXPECT_TRUE(std::isnan(value));
}

INSTANTIATE_TEST_SUITE_P(Tiers, MlaTest, test::all_tiers(), test::tier_of);

}  // namespace
}  // namespace waste::kernels
