// The rule, checked in f64, for scalar; scalar -> every tier bit for bit.
#include "kernels/quantize.h"

#include <cfloat>
#include <cmath>
#include <limits>

#include "tests/support/kernel_matrix.h"
#include "tests/support/tiers.h"

namespace waste::kernels {
namespace {

struct Quantized {
    std::vector<int8_t> codes;
    std::vector<float> scales;
    std::vector<int32_t> sums;
};

Quantized quantize_with(const QuantizeKernels& kernels, const std::vector<float>& x) {
    const auto cols = static_cast<int64_t>(x.size());
    const auto padded = static_cast<size_t>(padded_cols(cols));
    Quantized result{std::vector<int8_t>(padded, 99), std::vector<float>(padded / 32, 99.0f),
                     std::vector<int32_t>(padded / 32, 99)};
    kernels.int8(x.data(), cols, 1, result.codes.data(), result.scales.data(), result.sums.data());
    return result;
}

class QuantizeTest : public test::TierTest {
  protected:
    static Quantized quantize(const std::vector<float>& x) { return quantize_with(*GetParam().quantize, x); }
};

TEST_P(QuantizeTest, CodesAreTheNearest) {
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
                    const double ratio = double{x[i]} / double{largest} * 127.0;
                    // 127 / largest and the product are rounded.
                    ASSERT_LE(std::abs(ratio - q.codes[i]), 0.5 + 2.0 * 127.0 * test::kRounding) << i;
                }
            }
        }
    }
}

TEST_P(QuantizeTest, TiesGoToEven) {
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

TEST_P(QuantizeTest, ZerosHaveScaleZero) {
    const Quantized q = quantize(std::vector<float>(64, -0.0f));
    for (const float scale : q.scales) EXPECT_EQ(scale, 0.0f);
    for (const int8_t code : q.codes) EXPECT_EQ(code, 0);
    for (const int32_t sum : q.sums) EXPECT_EQ(sum, 0);
}

TEST_P(QuantizeTest, DamageShowsInItsGroupOnly) {
    for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                            -std::numeric_limits<float>::infinity()}) {
        std::vector<float> x(128, 1.0f);
        x[40] = bad;
        const Quantized q = quantize(x);
        for (size_t group = 0; group < 4; ++group) EXPECT_EQ(std::isnan(q.scales[group]), group == 1);
        for (size_t i = 0; i < 128; ++i) EXPECT_EQ(q.codes[i], i / 32 == 1 ? 0 : 127);
    }
}

TEST_P(QuantizeTest, ExtremesStayInRange) {
    for (const float magnitude : {FLT_MAX, 0x1p-120f, 0x1.fffffep-121f, FLT_MIN, FLT_TRUE_MIN}) {
        SCOPED_TRACE(magnitude);
        const Quantized q = quantize({magnitude, -magnitude, magnitude / 2});
        const bool kept = magnitude >= 0x1p-120f;
        EXPECT_EQ(q.codes[0], kept ? 127 : 0);
        EXPECT_EQ(q.codes[1], kept ? -127 : 0);
        EXPECT_EQ(q.scales[0], kept ? magnitude / 127.0f : 0.0f);
    }
}

TEST_P(QuantizeTest, VectorsOfManyTokensInterleave) {
    const std::vector<float> x = test::Random(2).normals(300, 1.0f);
    const Quantized alone = quantize(x);
    const int64_t stride = 3;
    Quantized q{std::vector<int8_t>(384 * 3, 99), std::vector<float>(12 * 3, 99.0f),
                std::vector<int32_t>(12 * 3, 99)};
    GetParam().quantize->int8(x.data(), 300, stride, q.codes.data() + kBlockCols,
                              q.scales.data() + kBlockGroups, q.sums.data() + kBlockGroups);
    for (size_t i = 0; i < q.codes.size(); ++i) {
        const size_t block = i / kBlockCols;
        EXPECT_EQ(q.codes[i], block % 3 == 1 ? alone.codes[block / 3 * kBlockCols + i % kBlockCols] : 99)
            << i;
    }
    for (size_t i = 0; i < q.scales.size(); ++i) {
        const size_t block = i / kBlockGroups;
        const size_t at = block / 3 * kBlockGroups + i % kBlockGroups;
        EXPECT_EQ(q.scales[i], block % 3 == 1 ? alone.scales[at] : 99.0f) << i;
        EXPECT_EQ(q.sums[i], block % 3 == 1 ? alone.sums[at] : 99) << i;
    }
}

TEST_P(QuantizeTest, EqualsScalarBitForBit) {
    test::Random random(3);
    for (const int64_t cols : {1, 5, 31, 33, 96, 127, 128, 130, 500, 2048}) {
        SCOPED_TRACE(cols);
        std::vector<float> x = random.normals(cols, 3.0f);
        x[static_cast<size_t>(cols / 2)] *= 0x1p-125f;
        const Quantized got = quantize(x);
        const Quantized expected = quantize_with(*scalar().quantize, x);
        EXPECT_EQ(got.codes, expected.codes);
        EXPECT_EQ(got.sums, expected.sums);
        EXPECT_EQ(test::first_difference(got.scales, expected.scales), "");
    }
}

INSTANTIATE_TEST_SUITE_P(Tiers, QuantizeTest, test::all_tiers(), test::tier_of);

}  // namespace
}  // namespace waste::kernels
