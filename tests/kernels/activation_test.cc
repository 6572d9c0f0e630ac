// f64 oracle and goldens -> scalar within derived bounds; scalar -> every tier bit for bit.
#include "kernels/activation.h"

#include <cmath>
#include <limits>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"
#include "tests/support/tiers.h"

namespace waste::kernels {
namespace {

using test::kRounding;

/// A few roundings of f32 library functions, each within an ulp or two; results may be subnormal.
void expect_close(std::span<const float> got, std::span<const float> expected) {
    ASSERT_EQ(got.size(), expected.size());
    for (size_t i = 0; i < got.size(); ++i) {
        EXPECT_NEAR(got[i], expected[i], std::abs(expected[i]) * 1e-6 + 1e-37) << i;
    }
    EXPECT_LT(test::relative_error(got, expected), 5e-6);
}

class ActivationTest : public test::TierTest {
  protected:
    const test::GoldenTensor<float> gate = test::kernel_goldens().f32("act.gate");
    const test::GoldenTensor<float> up = test::kernel_goldens().f32("act.up");
    const int64_t n = gate.dim(0);
    std::vector<float> y = std::vector<float>(gate.values.size());

    static const ActivationKernels& kernels() { return *GetParam().activation; }
    static std::vector<float> golden(const std::string& name) {
        return test::kernel_goldens().f32("act." + name).values;
    }
    static float sigmoid(float x) {
        kernels().sigmoid(&x, 1, &x);
        return x;
    }
};

TEST_P(ActivationTest, SigmoidAgreesWithGolden) {
    kernels().sigmoid(gate.data(), n, y.data());
    expect_close(y, golden("sigmoid"));
}

TEST_P(ActivationTest, SiluGluAgreesWithGolden) {
    kernels().silu_glu(gate.data(), up.data(), n, y.data());
    expect_close(y, golden("swiglu"));
}

TEST_P(ActivationTest, SituGluWithBothBoundsAgreesWithGolden) {
    kernels().situ_glu(gate.data(), up.data(), 4.0f, 25.0f, n, y.data());
    expect_close(y, golden("situ_4_25"));
}

TEST_P(ActivationTest, SituGluWithoutUpBoundAgreesWithGolden) {
    kernels().situ_glu(gate.data(), up.data(), 1.0f, 0.0f, n, y.data());
    expect_close(y, golden("situ_1_none"));
}

TEST_P(ActivationTest, SituGluAgreesWithOracle) {
    test::Random random(1);
    const std::vector<float> g = random.normals(1000, 4.0f);
    const std::vector<float> u = random.normals(1000, 30.0f);
    std::vector<float> out(1000);
    kernels().situ_glu(g.data(), u.data(), 4.0f, 25.0f, 1000, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
        const double expected =
            4.0 * std::tanh(g[i] / 4.0) / (1.0 + std::exp(-double{g[i]})) * 25.0 * std::tanh(u[i] / 25.0);
        // Two tanh of 2.5 ulps and a sigmoid of 2.4, each ulp two roundings; 1/linear_beta and the product
        // with it are two more (tanh never enlarges a relative error); five factors and denominators are
        // left.
        EXPECT_NEAR(out[i], expected, std::abs(expected) * (2 * (2.5 + 2.5 + 2.4) + 2 + 7) * kRounding);
    }
}

TEST_P(ActivationTest, OutputMayBeEitherInput) {
    std::vector<float> expected(y.size());
    kernels().situ_glu(gate.data(), up.data(), 4.0f, 25.0f, n, expected.data());
    y = gate.values;
    kernels().situ_glu(y.data(), up.data(), 4.0f, 25.0f, n, y.data());
    EXPECT_EQ(test::first_difference(y, expected), "");
    y = up.values;
    kernels().situ_glu(gate.data(), y.data(), 4.0f, 25.0f, n, y.data());
    EXPECT_EQ(test::first_difference(y, expected), "");
}

TEST_P(ActivationTest, SigmoidAtItsEnds) {
    const float infinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(sigmoid(infinity), 1.0f);
    EXPECT_EQ(sigmoid(-infinity), 0.0f);
    EXPECT_EQ(sigmoid(0.0f), 0.5f);
    EXPECT_EQ(sigmoid(200.0f), 1.0f);
    EXPECT_GE(sigmoid(-200.0f), 0.0f);
    EXPECT_NEAR(sigmoid(-90.0f), std::exp(-90.0), 0x1p-148) << "subnormal, but there";
    EXPECT_TRUE(std::isnan(sigmoid(std::nanf(""))));
}

TEST_P(ActivationTest, SigmoidGateMultiplies) {
    const float x[] = {1.0f, -2.0f, 3.0f};
    const float opening[] = {0.0f, 100.0f, -100.0f};
    kernels().sigmoid_gate(x, opening, 3, y.data());
    EXPECT_EQ(y[0], 0.5f);
    EXPECT_EQ(y[1], -2.0f);
    EXPECT_NEAR(y[2], 0.0f, 1e-40);
}

TEST_P(ActivationTest, SituIsBounded) {
    const float g[] = {1e30f, -1e30f, 3e38f};
    const float u[] = {1e30f, 1e30f, -3e38f};
    kernels().situ_glu(g, u, 4.0f, 25.0f, 3, y.data());
    EXPECT_FLOAT_EQ(y[0], 100.0f);
    EXPECT_EQ(y[1], 0.0f);
    EXPECT_FLOAT_EQ(y[2], -100.0f);
}

TEST_P(ActivationTest, SumsAreOneRounding) {
    const float x[] = {1.0f, 0x1p-23f, -3.0f};
    float sum[] = {2.0f, 1.0f, 3.0f};
    kernels().add(x, 3, sum);
    EXPECT_EQ(sum[0], 3.0f);
    EXPECT_EQ(sum[1], 1.0f + 0x1p-23f);
    EXPECT_EQ(sum[2], 0.0f);
    float fused[] = {-1.0f};
    const float factor[] = {1.0f + 0x1p-23f};
    kernels().add_scaled(factor, 1.0f - 0x1p-23f, 1, fused);
    EXPECT_EQ(fused[0], -0x1p-46f) << "a rounded product would give 0";
}

TEST_P(ActivationTest, EqualsScalarBitForBit) {
    test::Random random(2);
    for (const int64_t length : {1, 3, 4, 15, 16, 17, 31, 33, 64, 255}) {
        SCOPED_TRACE(length);
        const std::vector<float> x = random.normals(length, 6.0f);
        const std::vector<float> z = random.normals(length, 6.0f);
        const auto expect_equal = [&](const auto& run) {
            test::GuardedFloats got(length), expected(length);
            std::copy(z.begin(), z.end(), got.data());
            std::copy(z.begin(), z.end(), expected.data());
            run(GetParam(), got.data());
            run(scalar(), expected.data());
            EXPECT_TRUE(got.guards_intact());
            EXPECT_EQ(test::first_difference(got.values(), expected.values()), "");
        };
        const float* a = x.data();
        const float* b = z.data();
        using Tier = PortableKernels;
        expect_equal([&](const Tier& t, float* out) { t.activation->sigmoid(a, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.activation->sigmoid_gate(a, b, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.activation->silu_glu(a, b, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.activation->situ_glu(a, b, 4, 25, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.activation->situ_glu(a, b, 3, 0, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.activation->add(a, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.activation->add_scaled(a, 0.3f, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.kda_gate->bounded(a, b, 0.7f, -5, length, out); });
        expect_equal([&](const Tier& t, float* out) { t.kda_gate->softplus(a, b, 0.7f, length, out); });
    }
}

INSTANTIATE_TEST_SUITE_P(Tiers, ActivationTest, test::all_tiers(), test::tier_of);

}  // namespace
}  // namespace waste::kernels
