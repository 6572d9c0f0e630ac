#include "kernels/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

/// A few roundings of f32 library functions, each within an ulp or two; results may be subnormal.
void expect_close(std::span<const float> got, std::span<const float> expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], expected[i], std::abs(expected[i]) * 1e-6 + 1e-37) << i;
    }
    EXPECT_LT(test::relative_error(got, expected), 5e-6);
}

class ActivationGoldenTest : public testing::Test {
  protected:
    const test::GoldenTensor<float> gate = test::kernel_goldens().f32("act.gate");
    const test::GoldenTensor<float> up = test::kernel_goldens().f32("act.up");
    const int64_t n = gate.dim(0);
    std::vector<float> y = std::vector<float>(gate.values.size());

    std::vector<float> golden(const std::string& name) const {
        return test::kernel_goldens().f32("act." + name).values;
    }
};

TEST_F(ActivationGoldenTest, Sigmoid) {
    for (size_t i = 0; i < y.size(); ++i) y[i] = sigmoid(gate.values[i]);
    expect_close(y, golden("sigmoid"));
}

TEST_F(ActivationGoldenTest, SiluGlu) {
    silu_glu(gate.data(), up.data(), n, y.data());
    expect_close(y, golden("swiglu"));
}

TEST_F(ActivationGoldenTest, SituGluWithBothBounds) {
    situ_glu(gate.data(), up.data(), 4.0f, 25.0f, n, y.data());
    expect_close(y, golden("situ_4_25"));
}

TEST_F(ActivationGoldenTest, SituGluWithoutUpBound) {
    situ_glu(gate.data(), up.data(), 1.0f, 0.0f, n, y.data());
    expect_close(y, golden("situ_1_none"));
}

TEST_F(ActivationGoldenTest, OutputMayBeEitherInput) {
    std::vector<float> expected(y.size());
    situ_glu(gate.data(), up.data(), 4.0f, 25.0f, n, expected.data());
    y = gate.values;
    situ_glu(y.data(), up.data(), 4.0f, 25.0f, n, y.data());
    EXPECT_EQ(test::first_difference(y, expected), "");
    y = up.values;
    situ_glu(gate.data(), y.data(), 4.0f, 25.0f, n, y.data());
    EXPECT_EQ(test::first_difference(y, expected), "");
}

TEST(ActivationTest, SigmoidAtItsEnds) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(sigmoid(infinity), 1.0f);
    EXPECT_EQ(sigmoid(-infinity), 0.0f);
    EXPECT_EQ(sigmoid(0.0f), 0.5f);
    EXPECT_EQ(sigmoid(200.0f), 1.0f);
    EXPECT_GE(sigmoid(-200.0f), 0.0f);
    EXPECT_NEAR(sigmoid(-90.0f), std::exp(-90.0), 0x1p-148) << "subnormal, but there";
    EXPECT_TRUE(std::isnan(sigmoid(std::nanf(""))));
}

TEST(ActivationTest, SigmoidGateMultiplies) {
    const float x[] = {1.0f, -2.0f, 3.0f};
    const float gate[] = {0.0f, 100.0f, -100.0f};
    float y[3];
    sigmoid_gate(x, gate, 3, y);
    EXPECT_EQ(y[0], 0.5f);
    EXPECT_EQ(y[1], -2.0f);
    EXPECT_NEAR(y[2], 0.0f, 1e-40);
}

TEST(ActivationTest, SituIsBounded) {
    const float gate[] = {1e30f, -1e30f, 3e38f};
    const float up[] = {1e30f, 1e30f, -3e38f};
    float y[3];
    situ_glu(gate, up, 4.0f, 25.0f, 3, y);
    EXPECT_FLOAT_EQ(y[0], 100.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_FLOAT_EQ(y[2], -100.0f);
}

}  // namespace
}  // namespace waste::kernels
