// f64 oracle and goldens -> scalar within derived bounds; scalar -> every tier bit for bit.
#include "kernels/attn_res.h"

#include <cmath>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"
#include "tests/support/tiers.h"

namespace waste::kernels {
namespace {

class AttnResTest : public test::TierTest {};

TEST_P(AttnResTest, AgreesWithGoldens) {
    const test::GoldenFile& goldens = test::kernel_goldens();
    for (const int64_t count : {1, 3, 8}) {
        SCOPED_TRACE(count);
        const std::string prefix_name = "attnres." + std::to_string(count) + ".";
        const auto blocks = goldens.f32(prefix_name + "blocks");
        const auto prefix = goldens.f32(prefix_name + "prefix");
        const auto norm = goldens.f32(prefix_name + "norm");
        const auto proj = goldens.f32(prefix_name + "proj");
        const auto expected = goldens.f32(prefix_name + "out");
        const int64_t hidden = prefix.dim(1);
        std::vector<float> mix_weight(norm.values.size());
        for (size_t c = 0; c < mix_weight.size(); ++c) mix_weight[c] = norm.values[c] * proj.values[c];
        std::vector<float> out(static_cast<size_t>(hidden));
        for (int64_t t = 0; t < prefix.dim(0); ++t) {
            std::vector<const float*> candidates;
            for (int64_t i = 0; i < count; ++i)
                candidates.push_back(blocks.data() + (t * count + i) * hidden);
            candidates.push_back(prefix.data() + t * hidden);
            GetParam().attn_res->mix(candidates.data(), count + 1, mix_weight.data(), 1e-5f, hidden,
                                     out.data());
            EXPECT_LT(test::relative_error(out, expected.row(t, hidden)), 5e-6) << "token " << t;
        }
    }
}

TEST_P(AttnResTest, OneCandidateIsReturnedAsItIs) {
    const std::vector<float> candidate = test::Random(1).normals(33, 5.0f);
    const std::vector<float> mix_weight = test::Random(2).normals(33, 1.0f);
    const float* candidates[] = {candidate.data()};
    std::vector<float> out(33);
    GetParam().attn_res->mix(candidates, 1, mix_weight.data(), 1e-5f, 33, out.data());
    EXPECT_EQ(test::first_difference(out, candidate), "");
}

TEST_P(AttnResTest, LargeScoresDoNotOverflow) {
    const std::vector<float> low(8, -1.0f);
    const std::vector<float> high(8, 1.0f);
    const std::vector<float> mix_weight(8, 1000.0f);
    const float* candidates[] = {low.data(), high.data(), low.data()};
    std::vector<float> out(8);
    GetParam().attn_res->mix(candidates, 3, mix_weight.data(), 1e-5f, 8, out.data());
    EXPECT_EQ(test::first_difference(out, high), "");
}

TEST_P(AttnResTest, TakesTheMostCandidatesAllowed) {
    const std::vector<float> ones(5, 1.0f);
    const std::vector<const float*> candidates(kMaxAttnResCandidates, ones.data());
    std::vector<float> out(5);
    GetParam().attn_res->mix(candidates.data(), kMaxAttnResCandidates, ones.data(), 1e-5f, 5, out.data());
    for (const float value : out) EXPECT_FLOAT_EQ(value, 1.0f);
}

TEST_P(AttnResTest, AgreesWithOracle) {
    test::Random random(3);
    const int64_t count = 5;
    for (const int64_t hidden : {1, 15, 16, 63, 300}) {
        SCOPED_TRACE(hidden);
        const std::vector<float> rows = random.normals(count * hidden, 2.0f);
        const std::vector<float> mix_weight = random.normals(hidden, 0.3f);
        std::vector<const float*> candidates;
        std::vector<double> weight;
        double sum = 0.0, spread = 0.0;
        for (int64_t i = 0; i < count; ++i) {
            candidates.push_back(rows.data() + i * hidden);
            double squares = 0.0, product = 0.0;
            for (int64_t c = 0; c < hidden; ++c) {
                squares += double{candidates.back()[c]} * double{candidates.back()[c]};
                product += double{candidates.back()[c]} * double{mix_weight[static_cast<size_t>(c)]};
            }
            const double score = product / std::sqrt(squares / static_cast<double>(hidden) + double{1e-5f});
            spread = std::max(spread, std::abs(score));
            weight.push_back(std::exp(score));
            sum += weight.back();
        }
        std::vector<float> out(static_cast<size_t>(hidden));
        GetParam().attn_res->mix(candidates.data(), count, mix_weight.data(), 1e-5f, hidden, out.data());
        // A score is rounded to f32 and has the maximum taken off: both are relative errors of a weight,
        // which stands in the numerator and in the sum. Then the exponential, the sum, the division, the mix.
        const double relative = 2.0 * (3.0 * spread + 2.0) + count + 1.0 + count;
        for (int64_t c = 0; c < hidden; ++c) {
            double expected = 0.0, size = 0.0;
            for (size_t i = 0; i < count; ++i) {
                expected += weight[i] / sum * double{candidates[i][c]};
                size += std::abs(weight[i] / sum * double{candidates[i][c]});
            }
            EXPECT_NEAR(out[static_cast<size_t>(c)], expected, 1.01 * relative * size * test::kRounding);
        }
    }
}

TEST_P(AttnResTest, EqualsScalarBitForBit) {
    test::Random random(4);
    for (const int64_t hidden : {1, 7, 15, 16, 17, 127, 128, 130, 513}) {
        for (const int64_t count : {1, 2, 9, 17}) {
            SCOPED_TRACE(testing::Message() << hidden << " columns, " << count << " candidates");
            const std::vector<float> rows = random.normals(count * hidden, 2.0f);
            const std::vector<float> mix_weight = random.normals(hidden, 0.3f);
            std::vector<const float*> candidates;
            for (int64_t i = 0; i < count; ++i) candidates.push_back(rows.data() + i * hidden);
            test::GuardedFloats got(hidden), expected(hidden);
            const auto mix = [&](const AttnResKernels& kernels, float* out) {
                kernels.mix(candidates.data(), count, mix_weight.data(), 1e-5f, hidden, out);
            };
            mix(*GetParam().attn_res, got.data());
            mix(*scalar().attn_res, expected.data());
            EXPECT_TRUE(got.guards_intact());
            EXPECT_EQ(test::first_difference(got.values(), expected.values()), "");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Tiers, AttnResTest, test::all_tiers(), test::tier_of);

}  // namespace
}  // namespace waste::kernels
