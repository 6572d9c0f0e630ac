#include "kernels/norm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

constexpr double kGoldenLimit = 5e-6;

class NormGoldenTest : public testing::TestWithParam<std::string> {
  protected:
    test::GoldenTensor<float> golden(const std::string& name) const {
        return test::kernel_goldens().f32("norm." + GetParam() + "." + name);
    }

    /// Applies `run(row of x, row of gate, out)` to every row and compares with a golden.
    template <typename Run>
    void expect_rows(const std::string& name, const Run& run) const {
        const auto x = golden("x");
        const auto gate = golden("gate");
        const auto expected = golden(name);
        const int64_t n = x.dim(2);
        std::vector<float> y(static_cast<size_t>(n));
        for (int64_t row = 0; row < x.dim(0) * x.dim(1); ++row) {
            run(x.row(row, n).data(), gate.row(row, n).data(), n, y.data());
            EXPECT_LT(test::relative_error(y, expected.row(row, n)), kGoldenLimit) << name << " row " << row;
        }
    }
};

TEST_P(NormGoldenTest, RmsNorm) {
    const auto weight = golden("weight");
    expect_rows("rms", [&](const float* x, const float*, int64_t n, float* y) {
        rms_norm(x, weight.data(), 1e-5f, n, y);
    });
    expect_rows("rms_eps1e-6", [&](const float* x, const float*, int64_t n, float* y) {
        rms_norm(x, weight.data(), 1e-6f, n, y);
    });
}

TEST_P(NormGoldenTest, GatedRmsNorm) {
    const auto weight = golden("weight");
    expect_rows("rms_gated", [&](const float* x, const float* gate, int64_t n, float* y) {
        rms_norm_gated(x, weight.data(), gate, 1e-5f, n, y);
    });
}

TEST_P(NormGoldenTest, L2Norm) {
    expect_rows("l2", [](const float* x, const float*, int64_t n, float* y) { l2_norm(x, 1.0f, n, y); });
}

INSTANTIATE_TEST_SUITE_P(Scales, NormGoldenTest, testing::Values("unit", "tiny", "huge"),
                         [](const testing::TestParamInfo<std::string>& scale) { return scale.param; });

TEST(NormTest, AgreesWithOracleAtOddLengths) {
    test::Random random(1);
    for (const int64_t n : {1, 2, 7, 63, 65, 1000}) {
        const std::vector<float> x = random.normals(n, 2.0f);
        const std::vector<float> weight = random.normals(n, 1.0f);
        double squares = 0.0;
        for (const float value : x) squares += double{value} * double{value};
        std::vector<float> y(x.size());
        rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
        for (size_t i = 0; i < x.size(); ++i) {
            const double expected =
                x[i] / std::sqrt(squares / static_cast<double>(n) + double{1e-5f}) * weight[i];
            EXPECT_NEAR(y[i], expected, std::abs(expected) * 2.01 * test::kRounding);
        }
    }
}

TEST(NormTest, OutputMayBeInput) {
    const std::vector<float> x = test::Random(2).normals(50, 1.0f);
    const std::vector<float> weight = test::Random(3).normals(50, 1.0f);
    std::vector<float> expected(50), in_place = x;
    rms_norm_gated(x.data(), weight.data(), weight.data(), 1e-5f, 50, expected.data());
    rms_norm_gated(in_place.data(), weight.data(), weight.data(), 1e-5f, 50, in_place.data());
    EXPECT_EQ(test::first_difference(in_place, expected), "");
    in_place = x;
    l2_norm(x.data(), 0.5f, 50, expected.data());
    l2_norm(in_place.data(), 0.5f, 50, in_place.data());
    EXPECT_EQ(test::first_difference(in_place, expected), "");
}

TEST(NormTest, ZeroVectorsStayZero) {
    std::vector<float> x(16, 0.0f);
    const std::vector<float> weight(16, 1.0f);
    l2_norm(x.data(), 1.0f, 16, x.data());
    for (const float value : x) EXPECT_EQ(value, 0.0f);
    rms_norm(x.data(), weight.data(), 1e-6f, 16, x.data());
    for (const float value : x) EXPECT_EQ(value, 0.0f);
}

TEST(NormTest, LargestInputsDoNotOverflow) {
    std::vector<float> x(16, std::numeric_limits<float>::max());
    const std::vector<float> weight(16, 1.0f);
    std::vector<float> y(16);
    rms_norm(x.data(), weight.data(), 1e-5f, 16, y.data());
    for (const float value : y) EXPECT_FLOAT_EQ(value, 1.0f);
    l2_norm(x.data(), 1.0f, 16, y.data());
    for (const float value : y) EXPECT_FLOAT_EQ(value, 0.25f);
}

TEST(NormTest, NanReachesEveryElement) {
    std::vector<float> x(16, 1.0f);
    const std::vector<float> weight(16, 1.0f);
    x[3] = std::nanf("");
    rms_norm(x.data(), weight.data(), 1e-5f, 16, x.data());
    for (const float value : x) EXPECT_TRUE(std::isnan(value));
}

}  // namespace
}  // namespace waste::kernels
