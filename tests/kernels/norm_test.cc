// f64 oracle and goldens -> scalar within derived bounds; scalar -> every tier bit for bit.
#include "kernels/norm.h"

#include <cmath>
#include <limits>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"
#include "tests/support/tiers.h"

namespace waste::kernels {
namespace {

constexpr double kGoldenLimit = 5e-6;

class NormTest : public test::TierTest {
  protected:
    static const NormKernels& kernels() { return *GetParam().norm; }

    static test::GoldenTensor<float> golden(const std::string& scale, const std::string& name) {
        return test::kernel_goldens().f32("norm." + scale + "." + name);
    }

    /// Applies `run(x, weight, gate, n, out)` to every row of x and compares with a golden, at every scale.
    template <typename Run>
    static void expect_rows(const std::string& name, const Run& run) {
        for (const char* scale : {"unit", "tiny", "huge"}) {
            SCOPED_TRACE(scale);
            const auto x = golden(scale, "x");
            const auto weight = golden(scale, "weight");
            const auto gate = golden(scale, "gate");
            const auto expected = golden(scale, name);
            const int64_t n = x.dim(2);
            std::vector<float> y(static_cast<size_t>(n));
            for (int64_t row = 0; row < x.dim(0) * x.dim(1); ++row) {
                run(x.row(row, n).data(), weight.data(), gate.row(row, n).data(), n, y.data());
                EXPECT_LT(test::relative_error(y, expected.row(row, n)), kGoldenLimit)
                    << name << " row " << row;
            }
        }
    }
};

TEST_P(NormTest, RmsNormAgreesWithGoldens) {
    for (const auto& [name, eps] : {std::pair{"rms", 1e-5f}, std::pair{"rms_eps1e-6", 1e-6f}}) {
        expect_rows(name, [eps = eps](const float* x, const float* weight, const float*, int64_t n,
                                      float* y) { kernels().rms_norm(x, weight, eps, n, y); });
    }
}

TEST_P(NormTest, GatedRmsNormAgreesWithGoldens) {
    expect_rows("rms_gated", [](const float* x, const float* weight, const float* gate, int64_t n, float* y) {
        kernels().rms_norm_gated(x, weight, gate, 1e-5f, n, y);
    });
}

TEST_P(NormTest, L2NormAgreesWithGoldens) {
    expect_rows("l2", [](const float* x, const float*, const float*, int64_t n, float* y) {
        kernels().l2_norm(x, 1.0f, n, y);
    });
}

TEST_P(NormTest, AgreesWithOracleAtOddLengths) {
    test::Random random(1);
    for (const int64_t n : {1, 2, 7, 63, 65, 1000}) {
        const std::vector<float> x = random.normals(n, 2.0f);
        const std::vector<float> weight = random.normals(n, 1.0f);
        double squares = 0.0;
        for (const float value : x) squares += double{value} * double{value};
        std::vector<float> y(x.size());
        kernels().rms_norm(x.data(), weight.data(), 1e-5f, n, y.data());
        for (size_t i = 0; i < x.size(); ++i) {
            const double expected =
                x[i] / std::sqrt(squares / static_cast<double>(n) + double{1e-5f}) * weight[i];
            // Of the factor and of two products.
            EXPECT_NEAR(y[i], expected, std::abs(expected) * 3.01 * test::kRounding);
        }
    }
}

TEST_P(NormTest, OutputMayBeInput) {
    const std::vector<float> x = test::Random(2).normals(50, 1.0f);
    const std::vector<float> weight = test::Random(3).normals(50, 1.0f);
    std::vector<float> expected(50), in_place = x;
    kernels().rms_norm_gated(x.data(), weight.data(), weight.data(), 1e-5f, 50, expected.data());
    kernels().rms_norm_gated(in_place.data(), weight.data(), weight.data(), 1e-5f, 50, in_place.data());
    EXPECT_EQ(test::first_difference(in_place, expected), "");
    in_place = x;
    kernels().l2_norm(x.data(), 0.5f, 50, expected.data());
    kernels().l2_norm(in_place.data(), 0.5f, 50, in_place.data());
    EXPECT_EQ(test::first_difference(in_place, expected), "");
}

TEST_P(NormTest, ZeroVectorsStayZero) {
    std::vector<float> x(16, 0.0f);
    const std::vector<float> weight(16, 1.0f);
    kernels().l2_norm(x.data(), 1.0f, 16, x.data());
    for (const float value : x) EXPECT_EQ(value, 0.0f);
    kernels().rms_norm(x.data(), weight.data(), 1e-6f, 16, x.data());
    for (const float value : x) EXPECT_EQ(value, 0.0f);
}

TEST_P(NormTest, LargestInputsDoNotOverflow) {
    std::vector<float> x(16, std::numeric_limits<float>::max());
    const std::vector<float> weight(16, 1.0f);
    std::vector<float> y(16);
    kernels().rms_norm(x.data(), weight.data(), 1e-5f, 16, y.data());
    for (const float value : y) EXPECT_FLOAT_EQ(value, 1.0f);
    kernels().l2_norm(x.data(), 1.0f, 16, y.data());
    for (const float value : y) EXPECT_FLOAT_EQ(value, 0.25f);
}

TEST_P(NormTest, NanReachesEveryElement) {
    std::vector<float> x(16, 1.0f);
    const std::vector<float> weight(16, 1.0f);
    x[3] = std::nanf("");
    kernels().rms_norm(x.data(), weight.data(), 1e-5f, 16, x.data());
    for (const float value : x) EXPECT_TRUE(std::isnan(value));
}

TEST_P(NormTest, EqualsScalarBitForBit) {
    test::Random random(4);
    for (const int64_t n : {1, 3, 8, 15, 16, 17, 31, 33, 128, 255, 2048}) {
        SCOPED_TRACE(n);
        const std::vector<float> x = random.normals(n, 3.0f);
        const std::vector<float> weight = random.normals(n, 1.0f);
        const std::vector<float> gate = random.normals(n, 4.0f);
        const auto expect_equal = [&](const auto& run) {
            test::GuardedFloats got(n), expected(n);
            run(kernels(), got.data());
            run(*scalar().norm, expected.data());
            EXPECT_TRUE(got.guards_intact());
            EXPECT_EQ(test::first_difference(got.values(), expected.values()), "");
        };
        expect_equal(
            [&](const NormKernels& k, float* y) { k.rms_norm(x.data(), weight.data(), 1e-5f, n, y); });
        expect_equal([&](const NormKernels& k, float* y) {
            k.rms_norm_gated(x.data(), weight.data(), gate.data(), 1e-5f, n, y);
        });
        expect_equal([&](const NormKernels& k, float* y) { k.l2_norm(x.data(), 0.3f, n, y); });
    }
}

INSTANTIATE_TEST_SUITE_P(Tiers, NormTest, test::all_tiers(), test::tier_of);

}  // namespace
}  // namespace waste::kernels
