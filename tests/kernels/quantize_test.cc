#include "kernels/quantize.h"

#include <gtest/gtest.h>

#include <cfloat>
#include <cmath>
#include <limits>

#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

struct Quantized {
    std::vector<int8_t> codes;
    std::vector<float> scales;
    std::vector<int32_t> sums;
};

Quantized quantize(const std::vector<float>& x) {
    const auto cols = static_cast<int64_t>(x.size());
    const auto padded = static_cast<size_t>(padded_cols(cols));
    Quantized result{std::vector<int8_t>(padded, 99), std::vector<float>(padded / 32, 99.0f),
                     std::vector<int32_t>(padded / 32, 99)};
    quantize_int8(x.data(), cols, result.codes.data(), result.scales.data(), result.sums.data());
    return result;
}

TEST(QuantizeTest, CodesAreTheNearest) {
    test::Random random(1);
    for (const int64_t cols : {1, 31, 32, 33, 127, 128, 129, 300}) {
        SCOPED_TRACE(cols);
        const std::vector<float> x = random.normals(cols, 3.0f);
        const Quantized q = quantize(x);
        for (size_t group = 0; group < q.scales.size(); ++group) {
            float largest = 0.0f;
            int32_t sum = 0;
            for (size_t i = group * 32; i < group * 32 + 32; ++i) {
                if (i < x.size()) largest = std::max(largest, std::abs(x[i]));
                sum += q.codes[i];
            }
            EXPECT_EQ(q.scales[group], largest / 127.0f);
            EXPECT_EQ(q.sums[group], sum);
            for (size_t i = group * 32; i < group * 32 + 32; ++i) {
                if (i >= x.size()) {
                    ASSERT_EQ(q.codes[i], 0) << "padding";
                } else {
                    const double ratio = double{x[i]} / double{q.scales[group]};
                    ASSERT_LE(std::abs(ratio - q.codes[i]), 0.5 + 127.0 * test::kRounding) << i;
                }
            }
        }
    }
}

TEST(QuantizeTest, TiesGoToEven) {
    std::vector<float> x(32, 0.0f);
    x[0] = 127.0f;
    const float ties[] = {0.5f, 1.5f, 2.5f, -0.5f, -1.5f, -2.5f, 125.5f, -126.5f};
    const int codes[] = {0, 2, 2, 0, -2, -2, 126, -126};
    for (size_t i = 0; i < 8; ++i) x[i + 1] = ties[i];
    const Quantized q = quantize(x);
    EXPECT_EQ(q.scales[0], 1.0f);
    EXPECT_EQ(q.codes[0], 127);
    for (size_t i = 0; i < 8; ++i) EXPECT_EQ(q.codes[i + 1], codes[i]) << ties[i];
}

TEST(QuantizeTest, ZerosHaveScaleZero) {
    const Quantized q = quantize(std::vector<float>(64, -0.0f));
    for (const float scale : q.scales) EXPECT_EQ(scale, 0.0f);
    for (const int8_t code : q.codes) EXPECT_EQ(code, 0);
    for (const int32_t sum : q.sums) EXPECT_EQ(sum, 0);
}

TEST(QuantizeTest, DamageShowsInItsGroupOnly) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        std::vector<float> x(128, 1.0f);
        x[40] = bad;
        const Quantized q = quantize(x);
        for (size_t group = 0; group < 4; ++group) EXPECT_EQ(std::isnan(q.scales[group]), group == 1);
        for (size_t i = 0; i < 128; ++i) EXPECT_EQ(q.codes[i], i / 32 == 1 ? 0 : 127);
    }
}

TEST(QuantizeTest, ExtremesStayInRange) {
    for (const float magnitude : {FLT_MAX, FLT_MIN, FLT_TRUE_MIN, 63 * FLT_TRUE_MIN, 190 * FLT_TRUE_MIN}) {
        SCOPED_TRACE(magnitude);
        const Quantized q = quantize({magnitude, -magnitude, magnitude / 2});
        EXPECT_GE(q.codes[0], 0);
        EXPECT_LE(q.codes[0], 127);
        EXPECT_EQ(q.codes[1], -q.codes[0]);
        if (q.scales[0] == 0.0f) {
            EXPECT_EQ(q.codes[0], 0);
        }
    }
}

}  // namespace
}  // namespace waste::kernels
