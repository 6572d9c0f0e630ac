#include "kernels/attn_res.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

TEST(AttnResTest, AgreesWithGoldens) {
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
            attn_res_mix(candidates.data(), count + 1, mix_weight.data(), 1e-5f, hidden, out.data());
            EXPECT_LT(test::relative_error(out, expected.row(t, hidden)), 5e-6) << "token " << t;
        }
    }
}

TEST(AttnResTest, OneCandidateIsReturnedAsItIs) {
    const std::vector<float> candidate = test::Random(1).normals(33, 5.0f);
    const std::vector<float> mix_weight = test::Random(2).normals(33, 1.0f);
    const float* candidates[] = {candidate.data()};
    std::vector<float> out(33);
    attn_res_mix(candidates, 1, mix_weight.data(), 1e-5f, 33, out.data());
    EXPECT_EQ(test::first_difference(out, candidate), "");
}

TEST(AttnResTest, LargeScoresDoNotOverflow) {
    const std::vector<float> low(8, -1.0f);
    const std::vector<float> high(8, 1.0f);
    const std::vector<float> mix_weight(8, 1000.0f);
    const float* candidates[] = {low.data(), high.data(), low.data()};
    std::vector<float> out(8);
    attn_res_mix(candidates, 3, mix_weight.data(), 1e-5f, 8, out.data());
    EXPECT_EQ(test::first_difference(out, high), "");
}

TEST(AttnResTest, TakesTheMostCandidatesAllowed) {
    const std::vector<float> ones(5, 1.0f);
    const std::vector<const float*> candidates(kMaxAttnResCandidates, ones.data());
    std::vector<float> out(5);
    attn_res_mix(candidates.data(), kMaxAttnResCandidates, ones.data(), 1e-5f, 5, out.data());
    for (const float value : out) EXPECT_FLOAT_EQ(value, 1.0f);
}

}  // namespace
}  // namespace waste::kernels
