#include "kernels/mxfp4.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/format.h"
#include "kernels/matmul.h"
#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

TEST(Mxfp4Test, EveryByteOfTheGoldenUnpacksExactly) {
    const test::GoldenFile& goldens = test::kernel_goldens();
    const auto packed = goldens.u8("mxfp4.packed");
    const auto scale = goldens.u8("mxfp4.scale");
    const auto expected = goldens.f32("mxfp4.weight");
    std::vector<float> got(expected.values.size());
    mxfp4_unpack(packed.data(), scale.data(), expected.dim(0), expected.dim(1), got.data());
    for (size_t i = 0; i < got.size(); ++i) ASSERT_EQ(got[i], expected.values[i]) << i;
}

TEST(Mxfp4Test, CodesAndScalesFollowTheStandard) {
    std::vector<uint8_t> packed(16);
    for (size_t i = 0; i < 16; ++i) packed[i] = static_cast<uint8_t>((2 * i) % 16 | (2 * i + 1) % 16 << 4);
    const float magnitudes[] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    std::vector<float> got(32);
    for (int exponent = 0; exponent < 253; ++exponent) {
        const auto byte = static_cast<uint8_t>(exponent);
        mxfp4_unpack(packed.data(), &byte, 1, 32, got.data());
        for (size_t i = 0; i < 32; ++i) {
            const float sign = i % 16 < 8 ? 1.0f : -1.0f;
            ASSERT_EQ(got[i], sign * std::ldexp(magnitudes[i % 8], exponent - 127)) << exponent << " " << i;
        }
    }
}

struct Packed {
    std::vector<uint8_t> codes;
    std::vector<uint8_t> scale;
};

Packed random_packed(int64_t rows, int64_t cols) {
    test::Random random(static_cast<uint32_t>(rows * 1000 + cols));
    Packed result{std::vector<uint8_t>(static_cast<size_t>(rows * cols / 2)),
                  std::vector<uint8_t>(static_cast<size_t>(rows * cols / 32))};
    for (uint8_t& byte : result.codes) byte = random.byte();
    for (uint8_t& byte : result.scale) byte = static_cast<uint8_t>(random.bits() % 255);
    return result;
}

/// The panel made of `source` decodes to the same bits, the sign of zero included, with zeros in missing
/// rows.
void expect_same_weights(const Packed& source, int64_t rows, int64_t cols) {
    test::AlignedBytes panel(panel_bytes(Format::mxfp4, cols));
    std::fill_n(panel.data(), panel_bytes(Format::mxfp4, cols), std::byte{0xaa});
    mxfp4_repack_panel(source.codes.data(), source.scale.data(), rows, cols, panel.data());
    std::vector<float> decoded(static_cast<size_t>(kPanelRows * cols));
    format_info(Format::mxfp4).decode(panel.data(), cols, decoded.data());

    std::vector<float> expected(decoded.size(), 0.0f);
    mxfp4_unpack(source.codes.data(), source.scale.data(), rows, cols, expected.data());
    EXPECT_EQ(test::first_difference(decoded, expected), "");
}

TEST(Mxfp4Test, RepackingLosesNothing) {
    for (const int64_t rows : {1, 2, 15, 16}) {
        for (const int64_t cols : {32, 64, 96, 128, 160, 384}) {
            SCOPED_TRACE(testing::Message() << rows << " x " << cols);
            expect_same_weights(random_packed(rows, cols), rows, cols);
        }
    }
}

// Row r, group g: scale g, code bytes 16 r to 16 r + 15. So every byte meets every scale.
TEST(Mxfp4Test, RepackingKeepsEveryByteUnderEveryScale) {
    constexpr int64_t kScales = 255, kGroupBytes = 16;
    Packed source;
    for (int64_t row = 0; row < kPanelRows; ++row) {
        for (int64_t scale = 0; scale < kScales; ++scale) {
            source.scale.push_back(static_cast<uint8_t>(scale));
            for (int64_t i = 0; i < kGroupBytes; ++i) {
                source.codes.push_back(static_cast<uint8_t>(row * kGroupBytes + i));
            }
        }
    }
    expect_same_weights(source, kPanelRows, kScales * kGroupCols);
}

TEST(Mxfp4Test, PaddingOfARepackedPanelIsZero) {
    const Packed source = random_packed(3, 160);
    test::AlignedBytes panel(panel_bytes(Format::mxfp4, 160));
    std::fill_n(panel.data(), panel_bytes(Format::mxfp4, 160), std::byte{0xff});
    mxfp4_repack_panel(source.codes.data(), source.scale.data(), 3, 160, panel.data());
    std::vector<float> decoded(16 * 256);
    format_info(Format::mxfp4).decode(panel.data(), 256, decoded.data());
    for (size_t i = 0; i < decoded.size(); ++i) {
        if (i / 256 >= 3 || i % 256 >= 160) {
            ASSERT_EQ(decoded[i], 0.0f) << i;
        }
    }
}

TEST(Mxfp4Test, GoldenMatvecThroughEveryTier) {
    const test::GoldenFile& goldens = test::kernel_goldens();
    const auto packed = goldens.u8("mxfp4.mv_packed");
    const auto scale = goldens.u8("mxfp4.mv_scale");
    const auto x = goldens.f32("mxfp4.mv_x");
    const auto expected = goldens.f32("mxfp4.mv_y");
    const int64_t rows = packed.dim(0), cols = packed.dim(1) * 2;
    test::AlignedBytes panels(matrix_bytes(Format::mxfp4, rows, cols));
    for (int64_t row = 0; row < rows; row += kPanelRows) {
        mxfp4_repack_panel(packed.data() + row * cols / 2, scale.data() + row * cols / 32, kPanelRows, cols,
                           panels.data() + row / kPanelRows * panel_bytes(Format::mxfp4, cols));
    }
    for (const MatmulF32Variant& variant : matmul_f32_variants()) {
        if (variant.format != Format::mxfp4 || !tier_supported(variant.tier)) continue;
        SCOPED_TRACE(tier_name(variant.tier));
        std::vector<float> y(expected.values.size());
        variant.run({panels.data(), rows, cols}, x.data(), cols, x.dim(0), 0, panel_count(rows), y.data(),
                    rows);
        EXPECT_LT(test::relative_error(y, expected.values), 5e-6);
    }
    for (const MatmulInt8Variant& variant : matmul_int8_variants()) {
        if (variant.format != Format::mxfp4 || !tier_supported(variant.tier)) continue;
        SCOPED_TRACE(tier_name(variant.tier));
        std::vector<float> y(expected.values.size());
        const test::QuantizedTokens a(x.values, x.dim(0));
        variant.run({panels.data(), rows, cols}, a.view(), 0, panel_count(rows), y.data(), rows);
        // Activations rounded to 1/127 of their group's maximum: a step of about 2.5 deviations / 127 /
        // sqrt(12).
        EXPECT_LT(test::relative_error(y, expected.values), 0.01);
    }
}

}  // namespace
}  // namespace waste::kernels
