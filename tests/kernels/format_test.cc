#include "kernels/format.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfloat>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/float16.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

using test::encode_matrix;
using test::TestMatrix;

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

TEST(FormatTest, NamesGoBothWays) {
    EXPECT_EQ(all_formats().size(), size_t{kFormatCount});
    for (const FormatInfo& info : all_formats()) {
        EXPECT_EQ(format_from_name(info.name), info.format);
        EXPECT_EQ(&format_info(info.format), &info);
    }
    EXPECT_FALSE(format_from_name("q5").has_value());
}

TEST(FormatTest, BlocksHaveTheSizesOfThePanelPage) {
    EXPECT_EQ(format_info(Format::f32).block_bytes, 128 * 16 * 4);
    EXPECT_EQ(format_info(Format::bf16).block_bytes, 128 * 16 * 2);
    EXPECT_EQ(format_info(Format::q8).block_bytes, 2 * 16 * 2 + 128 * 16);
    EXPECT_EQ(format_info(Format::q4).block_bytes, 4 * 16 * 2 + 128 * 16 / 2);
    EXPECT_EQ(format_info(Format::mxfp4).block_bytes, 4 * 16 + 128 * 16 / 2);
    for (const FormatInfo& info : all_formats()) EXPECT_EQ(info.block_bytes % 64, 0) << info.name;
}

TEST(FormatTest, MatricesArePaddedToPanelsAndBlocks) {
    EXPECT_EQ(panel_bytes(Format::q4, 1), 1152);
    EXPECT_EQ(panel_bytes(Format::q4, 129), 2 * 1152);
    EXPECT_EQ(matrix_bytes(Format::q4, 17, 128), 2 * 1152);
    EXPECT_EQ(matrix_bytes(Format::f32, 16, 128), 8192);
    EXPECT_EQ(matrix_bytes(Format::q8, 12288, 7168), int64_t{768} * 56 * 2112);
    EXPECT_EQ(matrix_bytes(Format::f32, INT32_MAX, INT32_MAX), INT64_MAX) << "saturates";
}

/// Row-major weights with one marked element.
std::vector<float> marked(int64_t rows, int64_t cols, int64_t row, int64_t col, float value) {
    std::vector<float> weights(static_cast<size_t>(rows * cols), 0.0f);
    weights[static_cast<size_t>(row * cols + col)] = value;
    return weights;
}

/// Offset of the only byte from `begin` on that differs from `background`.
int64_t only_other_byte(const TestMatrix& matrix, int64_t begin, int64_t end, uint8_t background) {
    int64_t found = -1;
    for (int64_t i = begin; i < end; ++i) {
        if (matrix.bytes.data()[i] == std::byte{background}) continue;
        EXPECT_EQ(found, -1);
        found = i;
    }
    return found;
}

TEST(FormatTest, ElementsLieWhereThePanelPageSays) {
    const int64_t row = 5, col = 128 + 77;  // block 1, column 77: pair 38, quad 19, group 2, quad 3 of it
    const auto weights = marked(16, 256, row, col, 1.0f);

    const TestMatrix f32 = encode_matrix(Format::f32, 16, 256, weights);
    float value = 0.0f;
    std::memcpy(&value, f32.bytes.data() + 8192 + (77 * 16 + row) * 4, 4);
    EXPECT_EQ(value, 1.0f);

    const TestMatrix bf16 = encode_matrix(Format::bf16, 16, 256, weights);
    uint16_t bits = 0;
    std::memcpy(&bits, bf16.bytes.data() + 4096 + ((38 * 16 + row) * 2 + 1) * 2, 2);
    EXPECT_EQ(bits, 0x3f80);

    const TestMatrix q8 = encode_matrix(Format::q8, 16, 256, weights);
    EXPECT_EQ(only_other_byte(q8, 2112 + 64, 2 * 2112, 0), 2112 + 64 + (19 * 16 + row) * 4 + 1);
    std::memcpy(&bits, q8.bytes.data() + 2112 + (1 * 16 + row) * 2, 2);
    EXPECT_NEAR(bf16_to_f32(bits), 1.0f / 127.0f, 1.0f / 127.0f / 256.0f);

    const TestMatrix q4 = encode_matrix(Format::q4, 16, 256, weights);
    const int64_t low = 1152 + 128 + 2 * 256 + 3 * 64 + row * 4 + 1;
    EXPECT_EQ(only_other_byte(q4, 1152 + 128, 2 * 1152, 0x88), low);
    EXPECT_EQ(static_cast<int>(q4.bytes.data()[low]) >> 4, 8) << "the high nibble belongs to column 93";
    std::memcpy(&bits, q4.bytes.data() + 1152 + (2 * 16 + row) * 2, 2);
    EXPECT_NE(bits, 0);

    const TestMatrix high = encode_matrix(Format::q4, 16, 256, marked(16, 256, row, col + 16, 1.0f));
    EXPECT_EQ(only_other_byte(high, 1152 + 128, 2 * 1152, 0x88), low);
    EXPECT_EQ(static_cast<int>(high.bytes.data()[low]) & 15, 8);
}

TEST(FormatTest, PaddingDecodesToZero) {
    for (const FormatInfo& info : all_formats()) {
        if (info.encode == nullptr) continue;
        SCOPED_TRACE(info.name);
        TestMatrix matrix = test::random_matrix(info.format, 3, 33, 1);
        std::vector<float> decoded(16 * 128);
        info.decode(matrix.bytes.data(), 128, decoded.data());
        for (size_t i = 0; i < decoded.size(); ++i) {
            if (i / 128 < 3 && i % 128 < 33) continue;
            ASSERT_EQ(decoded[i], 0.0f) << "row " << i / 128 << " column " << i % 128;
        }
    }
}

TEST(FormatTest, F32AndBf16KeepWhatTheyCanHold) {
    test::Random random(2);
    std::vector<float> weights(33 * 129);
    for (float& weight : weights) {
        do {
            weight = std::bit_cast<float>(random.bits());
        } while (std::isnan(weight));
    }
    EXPECT_EQ(test::first_difference(encode_matrix(Format::f32, 33, 129, weights).weights, weights), "");
    for (float& weight : weights) weight = bf16_to_f32(f32_to_bf16(weight));
    EXPECT_EQ(test::first_difference(encode_matrix(Format::bf16, 33, 129, weights).weights, weights), "");
}

TEST(FormatTest, Q8ErrsByHalfAStep) {
    test::Random random(3);
    const int64_t rows = 33, cols = 300;
    const std::vector<float> weights = random.normals(rows * cols, 0.05f);
    const TestMatrix matrix = encode_matrix(Format::q8, rows, cols, weights);
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t group = 0; group < cols; group += 64) {
            float largest = 0.0f;
            const int64_t end = std::min(group + 64, cols);
            for (int64_t col = group; col < end; ++col) {
                largest = std::max(largest, std::abs(weights[static_cast<size_t>(row * cols + col)]));
            }
            // Half a step of a scale that bf16 rounding may enlarge by 2^-8; where it shrinks the scale
            // instead, the extreme is clamped to within 2^-8 of itself, again half a step.
            const float limit = largest / 127.0f * 0.5f * 1.02f;
            for (int64_t col = group; col < end; ++col) {
                ASSERT_NEAR(matrix.weight(row, col), weights[static_cast<size_t>(row * cols + col)], limit);
            }
        }
    }
}

double squared_error(std::span<const float> weights, float scale) {
    double error = 0.0;
    for (const float weight : weights) {
        const float code = scale != 0.0f ? std::clamp(std::nearbyint(weight / scale), -8.0f, 7.0f) : 0.0f;
        error += std::pow(double{weight} - double{code} * double{scale}, 2);
    }
    return error;
}

/// The least error over every bf16 scale that could make sense.
double least_error(std::span<const float> weights) {
    float largest = 0.0f;
    for (const float weight : weights) largest = std::max(largest, std::abs(weight));
    double least = std::numeric_limits<double>::infinity();
    for (uint16_t bits = f32_to_bf16(largest / 14.0f); bits <= f32_to_bf16(largest / 3.0f); ++bits) {
        least = std::min(
            {least, squared_error(weights, bf16_to_f32(bits)), squared_error(weights, -bf16_to_f32(bits))});
    }
    return least;
}

TEST(FormatTest, Q4FindsNearlyTheBestScale) {
    test::Random random(4);
    const int64_t rows = 64, cols = 256;
    std::vector<float> weights = random.normals(rows * cols, 0.05f);
    for (size_t i = 0; i < weights.size(); i += 101) weights[i] *= 6.0f;  // outliers
    const TestMatrix matrix = encode_matrix(Format::q4, rows, cols, weights);
    double error = 0.0;
    double least = 0.0;
    double plain = 0.0;
    for (size_t begin = 0; begin < weights.size(); begin += 32) {
        const std::span<const float> group = std::span<const float>(weights).subspan(begin, 32);
        double group_error = 0.0;
        float largest = 0.0f;
        for (size_t i = 0; i < 32; ++i) {
            group_error += std::pow(double{matrix.weights[begin + i]} - double{group[i]}, 2);
            largest = std::max(largest, std::abs(group[i]));
        }
        const double best = least_error(group);
        EXPECT_LE(group_error, best * 1.10) << "group at " << begin;
        error += group_error;
        least += best;
        plain += squared_error(group, bf16_to_f32(f32_to_bf16(largest / 7.0f)));
    }
    EXPECT_LT(error, least * 1.001);
    EXPECT_LT(error, plain * 0.80) << "against the largest weight on code 7";
}

TEST(FormatTest, Q4IsExactWhereItCanBe) {
    // All sixteen codes at a scale of either sign.
    for (const float scale : {0.25f, -0.25f}) {
        std::vector<float> weights(16 * 32);
        for (size_t i = 0; i < weights.size(); ++i) weights[i] = scale * (static_cast<float>(i % 16) - 8.0f);
        const TestMatrix matrix = encode_matrix(Format::q4, 16, 32, weights);
        for (size_t i = 0; i < weights.size(); ++i) ASSERT_EQ(matrix.weights[i], weights[i]) << i;
    }
}

TEST(FormatTest, EncodingIsRepeatable) {
    for (const Format format : {Format::q8, Format::q4}) {
        const TestMatrix first = test::random_matrix(format, 16, 512, 5);
        const TestMatrix second = test::random_matrix(format, 16, 512, 5);
        EXPECT_EQ(std::memcmp(first.bytes.data(), second.bytes.data(),
                              static_cast<size_t>(matrix_bytes(format, 16, 512))),
                  0);
    }
}

TEST(FormatTest, GroupsOfZerosHaveScaleZero) {
    const std::vector<float> zeros(16 * 128, -0.0f);
    for (const Format format : {Format::q8, Format::q4}) {
        const TestMatrix matrix = encode_matrix(format, 16, 128, zeros);
        const int64_t scales = format == Format::q8 ? 64 : 128;
        for (int64_t i = 0; i < scales; ++i) ASSERT_EQ(matrix.bytes.data()[i], std::byte{0});
        const std::byte zero_code{format == Format::q8 ? uint8_t{0} : uint8_t{0x88}};
        for (int64_t i = scales; i < matrix_bytes(format, 16, 128); ++i) {
            ASSERT_EQ(matrix.bytes.data()[i], zero_code);
        }
    }
}

TEST(FormatTest, DamageShowsInItsGroupOnly) {
    for (const Format format : {Format::q8, Format::q4}) {
        for (const float bad : {kNaN, kInfinity, -kInfinity}) {
            std::vector<float> weights = test::Random(6).normals(16 * 256, 1.0f);
            weights[3 * 256 + 100] = bad;
            const TestMatrix matrix = encode_matrix(format, 16, 256, weights);
            const int64_t group = format == Format::q8 ? 64 : 32;
            for (int64_t row = 0; row < 16; ++row) {
                for (int64_t col = 0; col < 256; ++col) {
                    const bool damaged = row == 3 && col / group == 100 / group;
                    ASSERT_EQ(std::isnan(matrix.weight(row, col)), damaged) << row << " " << col;
                }
            }
        }
    }
}

TEST(FormatTest, ExtremeMagnitudesKeepTheirShape) {
    for (const Format format : {Format::q8, Format::q4}) {
        for (const float magnitude : {1e37f, 1e20f, 1e-20f, 1e-34f}) {
            SCOPED_TRACE(magnitude);
            std::vector<float> weights = test::Random(7).normals(16 * 128, 0.25f);
            for (float& weight : weights) weight *= magnitude;
            const TestMatrix matrix = encode_matrix(format, 16, 128, weights);
            double error = 0.0;
            double energy = 0.0;
            for (size_t i = 0; i < weights.size(); ++i) {
                error += std::pow((double{matrix.weights[i]} - double{weights[i]}) / double{magnitude}, 2);
                energy += std::pow(double{weights[i]} / double{magnitude}, 2);
            }
            // Uniform rounding noise: 1/12 of a squared step, with steps of about 3 deviations / 127 or / 8.
            EXPECT_LT(std::sqrt(error / energy), format == Format::q8 ? 0.01 : 0.11);
        }
        // At the ends of what a bf16 scale can hold: no NaN and no wrong sign.
        for (const float magnitude : {FLT_MAX, FLT_TRUE_MIN, 1e-39f}) {
            const TestMatrix matrix = encode_matrix(format, 16, 128, std::vector<float>(16 * 128, magnitude));
            for (const float weight : matrix.weights) {
                ASSERT_FALSE(std::isnan(weight)) << magnitude;
                ASSERT_GE(weight, 0.0f);
            }
        }
    }
}

TEST(Float16Test, NarrowingRoundsToNearestEven) {
    EXPECT_EQ(f32_to_bf16(1.0f), 0x3f80);
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808000u)), 0x3f80) << "tie to even, down";
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f818000u)), 0x3f82) << "tie to even, up";
    EXPECT_EQ(f32_to_bf16(std::bit_cast<float>(0x3f808001u)), 0x3f81);
    EXPECT_EQ(f32_to_bf16(FLT_MAX), 0x7f80) << "overflows to Inf";
    EXPECT_EQ(f32_to_bf16(-kInfinity), 0xff80);
    EXPECT_TRUE(std::isnan(bf16_to_f32(f32_to_bf16(std::bit_cast<float>(0x7f800001u)))));
}

TEST(Float16Test, EveryF16Widens) {
    for (uint32_t bits = 0; bits < 0x10000; ++bits) {
        const float sign = (bits & 0x8000u) != 0 ? -1.0f : 1.0f;
        const auto exponent = static_cast<int>(bits >> 10 & 31u);
        const auto mantissa = static_cast<float>(bits & 0x3ffu);
        const float value = f16_to_f32(static_cast<uint16_t>(bits));
        if (exponent == 31) {
            ASSERT_EQ(std::isnan(value), mantissa != 0.0f) << bits;
            if (mantissa == 0.0f) {
                ASSERT_EQ(value, sign * kInfinity);
            }
            continue;
        }
        const float expected =
            exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(1024.0f + mantissa, exponent - 25);
        ASSERT_EQ(value, sign * expected) << bits;
    }
}

}  // namespace
}  // namespace waste::kernels
