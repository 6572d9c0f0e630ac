// f64 oracle -> scalar within the rounding the contract allows; scalar -> every tier bit for bit.
#include "kernels/matvec.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "kernels/quantize.h"
#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

using test::kRounding;
using test::TestMatrix;

constexpr int64_t kRows[] = {1, 15, 16, 17, 33};
constexpr int64_t kCols[] = {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 160, 300, 1027};

template <typename Variant>
std::string variant_name(const testing::TestParamInfo<Variant>& info) {
    return std::string(tier_name(info.param.tier)) + "_" + std::string(format_info(info.param.format).name);
}

template <typename Variant>
Variant scalar_twin(std::span<const Variant> variants, Format format) {
    for (const Variant& variant : variants) {
        if (variant.tier == Tier::scalar && variant.format == format) return variant;
    }
    ADD_FAILURE() << "no scalar variant of " << format_info(format).name;
    return variants.front();
}

/// Runs the whole matrix in one call and checks that nothing around y is written.
template <typename Run, typename Activation>
std::vector<float> run_whole(Run run, const TestMatrix& w, const Activation& x) {
    test::GuardedFloats y(w.rows);
    run(w.panels(), x, 0, panel_count(w.rows), y.data());
    EXPECT_TRUE(y.guards_intact()) << "wrote outside y";
    return {y.values().begin(), y.values().end()};
}

/// Runs every panel on its own, last one first.
template <typename Run, typename Activation>
std::vector<float> run_split(Run run, const TestMatrix& w, const Activation& x) {
    test::GuardedFloats y(w.rows);
    for (int64_t panel = panel_count(w.rows); panel-- > 0;) run(w.panels(), x, panel, panel + 1, y.data());
    EXPECT_TRUE(y.guards_intact()) << "wrote outside y";
    return {y.values().begin(), y.values().end()};
}

template <typename Check>
void for_each_shape(Format format, const Check& check) {
    uint32_t seed = 1;
    for (const int64_t rows : kRows) {
        for (const int64_t cols : kCols) {
            const int64_t legal = test::legal_cols(format, cols);
            SCOPED_TRACE(testing::Message() << rows << " x " << legal);
            ++seed;
            check(test::random_matrix(format, rows, legal, seed), test::Random(seed).normals(legal, 1.0f));
        }
    }
}

// f32 activations

class MatvecF32Test : public testing::TestWithParam<MatvecF32Variant> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam().tier)) {
            GTEST_SKIP() << "this CPU has no " << tier_name(GetParam().tier);
        }
    }
    MatvecF32 run() const { return GetParam().run; }
    MatvecF32 scalar() const { return scalar_twin(matvec_f32_variants(), GetParam().format).run; }
};

TEST_P(MatvecF32Test, AgreesWithOracle) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        const std::vector<float> y = run_whole(run(), w, x.data());
        // A chain of 64, the fold of two chains, and one addition a block.
        const double roundings = 64.0 + 2.0 + static_cast<double>(block_count(w.cols));
        for (int64_t row = 0; row < w.rows; ++row) {
            double exact = 0.0;
            double magnitude = 0.0;
            for (int64_t col = 0; col < w.cols; ++col) {
                const double term = double{w.weight(row, col)} * double{x[static_cast<size_t>(col)]};
                exact += term;
                magnitude += std::abs(term);
            }
            ASSERT_NEAR(y[static_cast<size_t>(row)], exact, 1.01 * roundings * kRounding * magnitude)
                << "row " << row;
        }
    });
}

TEST_P(MatvecF32Test, EqualsScalarBitForBit) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        EXPECT_EQ(test::first_difference(run_whole(run(), w, x.data()), run_whole(scalar(), w, x.data())),
                  "");
    });
}

TEST_P(MatvecF32Test, SplitRangesEqualTheWhole) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        EXPECT_EQ(test::first_difference(run_split(run(), w, x.data()), run_whole(run(), w, x.data())), "");
    });
}

TEST_P(MatvecF32Test, PassesNanAndInfOn) {
    const TestMatrix w = test::random_matrix(GetParam().format, 17, 160, 5);
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
        std::vector<float> x = test::Random(6).normals(160, 1.0f);
        x[150] = bad;
        const std::vector<float> y = run_whole(run(), w, x.data());
        for (const float value : y) EXPECT_FALSE(std::isfinite(value));
        EXPECT_EQ(test::first_difference(y, run_whole(scalar(), w, x.data())), "");
    }
}

TEST_P(MatvecF32Test, TakesUnalignedActivations) {
    const TestMatrix w = test::random_matrix(GetParam().format, 33, 288, 7);
    const std::vector<float> x = test::Random(8).normals(288 + 3, 1.0f);
    for (int64_t offset = 0; offset < 4; ++offset) {
        const std::vector<float> moved(x.begin() + offset, x.begin() + offset + 288);
        EXPECT_EQ(test::first_difference(run_whole(run(), w, x.data() + offset),
                                         run_whole(scalar(), w, moved.data())),
                  "");
    }
}

INSTANTIATE_TEST_SUITE_P(Variants, MatvecF32Test,
                         testing::ValuesIn(matvec_f32_variants().begin(), matvec_f32_variants().end()),
                         variant_name<MatvecF32Variant>);

// int8 activations

class MatvecInt8Test : public testing::TestWithParam<MatvecInt8Variant> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam().tier)) {
            GTEST_SKIP() << "this CPU has no " << tier_name(GetParam().tier);
        }
    }
    MatvecInt8 run() const { return GetParam().run; }
    MatvecInt8 scalar() const { return scalar_twin(matvec_int8_variants(), GetParam().format).run; }

    void expect_near_oracle(const TestMatrix& w, const Int8Vector& x) const {
        const std::vector<float> y = run_whole(run(), w, x);
        // One rounding a group in the sum, one in its scale; which, if subnormal, is off by up to 2^-150
        // instead.
        const auto groups = static_cast<double>(padded_cols(w.cols) / kGroupCols);
        const double roundings = groups + 2.0;
        const double underflow = groups * kGroupCols * 127.0 * 127.0 * 0x1p-150;
        for (int64_t row = 0; row < w.rows; ++row) {
            double exact = 0.0;
            double magnitude = 0.0;
            for (int64_t col = 0; col < w.cols; ++col) {
                const double activation = double{x.scales[col / kGroupCols]} * x.codes[col];
                exact += w.weight(row, col) * activation;
                magnitude += std::abs(w.weight(row, col) * activation);
            }
            ASSERT_NEAR(y[static_cast<size_t>(row)], exact,
                        1.01 * roundings * kRounding * magnitude + underflow)
                << "row " << row;
        }
    }
};

TEST_P(MatvecInt8Test, AgreesWithOracle) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        expect_near_oracle(w, test::QuantizedVector(x).view());
    });
}

TEST_P(MatvecInt8Test, EqualsScalarBitForBit) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        const test::QuantizedVector a(x);
        EXPECT_EQ(test::first_difference(run_whole(run(), w, a.view()), run_whole(scalar(), w, a.view())),
                  "");
    });
}

TEST_P(MatvecInt8Test, SplitRangesEqualTheWhole) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        const test::QuantizedVector a(x);
        EXPECT_EQ(test::first_difference(run_split(run(), w, a.view()), run_whole(run(), w, a.view())), "");
    });
}

/// Largest codes of either sign on both sides: intermediate sums must not saturate.
TEST_P(MatvecInt8Test, HoldsTheLargestSums) {
    const int64_t cols = 256;
    TestMatrix w = test::random_matrix(GetParam().format, 16, cols, 9);
    const FormatInfo& info = format_info(GetParam().format);
    const int64_t scale_bytes =
        info.block_bytes - kBlockCols * kPanelRows / (info.format == Format::q8 ? 1 : 2);
    const std::vector<uint8_t> extremes = info.format == Format::q8 ? std::vector<uint8_t>{0x7f, 0x81}
                                          : info.format == Format::q4
                                              ? std::vector<uint8_t>{0xff, 0x00, 0x0f}
                                              : std::vector<uint8_t>{0x77, 0xff, 0x7f};
    for (const uint8_t extreme : extremes) {
        for (int64_t block = 0; block < 2; ++block) {
            std::byte* codes = w.bytes.data() + block * info.block_bytes + scale_bytes;
            std::fill(codes, w.bytes.data() + (block + 1) * info.block_bytes, std::byte{extreme});
        }
        info.decode(w.bytes.data(), cols, w.weights.data());
        for (const float sign : {1.0f, -1.0f}) {
            const test::QuantizedVector a(std::vector<float>(static_cast<size_t>(cols), sign));
            expect_near_oracle(w, a.view());
            EXPECT_EQ(test::first_difference(run_whole(run(), w, a.view()), run_whole(scalar(), w, a.view())),
                      "");
        }
    }
}

TEST_P(MatvecInt8Test, ShowsDamagedActivations) {
    const TestMatrix w = test::random_matrix(GetParam().format, 17, 160, 10);
    std::vector<float> x = test::Random(11).normals(160, 1.0f);
    x[70] = std::numeric_limits<float>::infinity();
    const test::QuantizedVector a(x);
    for (const float value : run_whole(run(), w, a.view())) EXPECT_TRUE(std::isnan(value));
}

TEST_P(MatvecInt8Test, ZeroActivationsGiveZero) {
    const TestMatrix w = test::random_matrix(GetParam().format, 33, 320, 12);
    const test::QuantizedVector a(std::vector<float>(320, 0.0f));
    for (const float value : run_whole(run(), w, a.view())) EXPECT_EQ(value, 0.0f);
}

INSTANTIATE_TEST_SUITE_P(Variants, MatvecInt8Test,
                         testing::ValuesIn(matvec_int8_variants().begin(), matvec_int8_variants().end()),
                         variant_name<MatvecInt8Variant>);

}  // namespace
}  // namespace waste::kernels
