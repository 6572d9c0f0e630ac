// f64 oracle -> scalar within the rounding the contract allows; scalar -> every tier bit for bit, for one token
// and for many, however panels and tokens are cut.
#include "kernels/matmul.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

using test::kRounding;
using test::TestMatrix;

constexpr int64_t kRows[] = {1, 15, 16, 17, 33};
constexpr int64_t kCols[] = {1, 2, 31, 32, 33, 63, 64, 65, 96, 127, 128, 129, 160, 300, 1027};

/// Around the tokens of an inner kernel, of a tile, and of two.
constexpr int64_t kTokens[] = {2, 3, 4, 5, 6, 7, 8, 16, 17, 33, 47, 48, 49, 97};

struct Shape {
    int64_t rows;
    int64_t cols;
};
/// An odd number of panels, a partial one, several blocks and a partial one.
constexpr Shape kTokenShapes[] = {{1, 1}, {16, 128}, {17, 160}, {32, 256}, {35, 389}};

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

/// A kernel and its activations, so that both kinds are called alike.
struct F32Product {
    MatmulF32 kernel;
    const float* x;
    int64_t x_stride;
    int64_t tokens;

    F32Product part(int64_t begin, int64_t count) const {
        return {kernel, x + begin * x_stride, x_stride, count};
    }
    void run(const Panels& w, int64_t panel_begin, int64_t panel_end, float* y, int64_t y_stride) const {
        kernel(w, x, x_stride, tokens, panel_begin, panel_end, y, y_stride);
    }
};
struct Int8Product {
    MatmulInt8 kernel;
    Int8Tokens x;
    int64_t tokens = x.tokens;

    Int8Product part(int64_t begin, int64_t count) const { return {kernel, x.part(begin, count)}; }
    void run(const Panels& w, int64_t panel_begin, int64_t panel_end, float* y, int64_t y_stride) const {
        kernel(w, x, panel_begin, panel_end, y, y_stride);
    }
};

/// y [tokens][rows], computed in a wider buffer by `compute(y, y_stride)`, which must leave the rest alone.
template <typename Compute>
std::vector<float> collect(int64_t rows, int64_t tokens, const Compute& compute) {
    const int64_t y_stride = rows + 3;
    test::GuardedFloats y(tokens * y_stride);
    compute(y.data(), y_stride);
    EXPECT_TRUE(y.guards_intact()) << "wrote outside y";
    std::vector<float> result;
    for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t row = 0; row < rows; ++row) result.push_back(y.data()[t * y_stride + row]);
        for (int64_t row = rows; row < y_stride; ++row) {
            EXPECT_TRUE(y.untouched(t * y_stride + row)) << "wrote past the rows of token " << t;
        }
    }
    return result;
}

/// The whole product in one call.
template <typename Product>
std::vector<float> run_whole(const Product& product, const TestMatrix& w) {
    return collect(w.rows, product.tokens, [&](float* y, int64_t y_stride) {
        product.run(w.panels(), 0, panel_count(w.rows), y, y_stride);
    });
}

/// Every panel on its own, last one first.
template <typename Product>
std::vector<float> run_panels(const Product& product, const TestMatrix& w) {
    return collect(w.rows, product.tokens, [&](float* y, int64_t y_stride) {
        for (int64_t panel = panel_count(w.rows); panel-- > 0;) {
            product.run(w.panels(), panel, panel + 1, y, y_stride);
        }
    });
}

/// `most` tokens a call, with all panels but the first, then the first.
template <typename Product>
std::vector<float> run_parts(const Product& product, const TestMatrix& w, int64_t most) {
    return collect(w.rows, product.tokens, [&](float* y, int64_t y_stride) {
        for (int64_t t = 0; t < product.tokens; t += most) {
            const Product part = product.part(t, std::min(most, product.tokens - t));
            part.run(w.panels(), 1, panel_count(w.rows), y + t * y_stride, y_stride);
            part.run(w.panels(), 0, 1, y + t * y_stride, y_stride);
        }
    });
}

/// check(matrix, one vector)
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

/// check(matrix, x [tokens][cols], tokens)
template <typename Check>
void for_each_token_count(Format format, const Check& check) {
    uint32_t seed = 100;
    for (const Shape& shape : kTokenShapes) {
        const int64_t cols = test::legal_cols(format, shape.cols);
        const TestMatrix w = test::random_matrix(format, shape.rows, cols, ++seed);
        for (const int64_t tokens : kTokens) {
            SCOPED_TRACE(testing::Message() << shape.rows << " x " << cols << ", " << tokens << " tokens");
            check(w, test::Random(++seed).normals(cols * tokens, 1.0f), tokens);
        }
    }
}

// f32 activations

class MatmulF32Test : public testing::TestWithParam<MatmulF32Variant> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam().tier)) {
            GTEST_SKIP() << "this CPU has no " << tier_name(GetParam().tier);
        }
    }
    F32Product product(std::span<const float> x, int64_t tokens) const {
        const auto cols = static_cast<int64_t>(x.size()) / tokens;
        return {GetParam().run, x.data(), cols, tokens};
    }
    F32Product scalar(std::span<const float> x, int64_t tokens) const {
        F32Product twin = product(x, tokens);
        twin.kernel = scalar_twin(matmul_f32_variants(), GetParam().format).run;
        return twin;
    }
};

TEST_P(MatmulF32Test, AgreesWithOracle) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        const std::vector<float> y = run_whole(product(x, 1), w);
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

TEST_P(MatmulF32Test, EqualsScalarBitForBit) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        EXPECT_EQ(test::first_difference(run_whole(product(x, 1), w), run_whole(scalar(x, 1), w)), "");
    });
}

TEST_P(MatmulF32Test, ManyTokensEqualScalarBitForBit) {
    for_each_token_count(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x,
                                                int64_t tokens) {
        EXPECT_EQ(test::first_difference(run_whole(product(x, tokens), w), run_whole(scalar(x, tokens), w)),
                  "");
    });
}

TEST_P(MatmulF32Test, CutsEqualTheWhole) {
    for_each_token_count(
        GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x, int64_t tokens) {
            const std::vector<float> whole = run_whole(product(x, tokens), w);
            EXPECT_EQ(test::first_difference(run_panels(product(x, tokens), w), whole), "");
            for (const int64_t most : {1, 7, 64}) {
                EXPECT_EQ(test::first_difference(run_parts(product(x, tokens), w, most), whole), "");
            }
        });
}

TEST_P(MatmulF32Test, ReadsTokensAtTheirStride) {
    const int64_t cols = 160, stride = 173, tokens = 9;
    const TestMatrix w = test::random_matrix(GetParam().format, 33, cols, 3);
    // What lies between the tokens must not count.
    std::vector<float> wide(static_cast<size_t>(stride * tokens), std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> x = test::Random(4).normals(cols * tokens, 1.0f);
    for (int64_t t = 0; t < tokens; ++t) std::copy_n(x.begin() + t * cols, cols, wide.begin() + t * stride);
    const F32Product strided{GetParam().run, wide.data(), stride, tokens};
    EXPECT_EQ(test::first_difference(run_whole(strided, w), run_whole(scalar(x, tokens), w)), "");
}

TEST_P(MatmulF32Test, PassesNanAndInfOn) {
    const TestMatrix w = test::random_matrix(GetParam().format, 17, 160, 5);
    for (const int64_t tokens : {1, 3}) {
        for (const float bad :
             {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
            std::vector<float> x = test::Random(6).normals(160 * tokens, 1.0f);
            x[150] = bad;
            const std::vector<float> y = run_whole(product(x, tokens), w);
            for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isfinite(y[i]), i >= 17);
            EXPECT_EQ(test::first_difference(y, run_whole(scalar(x, tokens), w)), "");
        }
    }
}

TEST_P(MatmulF32Test, TakesUnalignedActivations) {
    const TestMatrix w = test::random_matrix(GetParam().format, 33, 288, 7);
    for (const int64_t tokens : {1, 5}) {
        const std::vector<float> x = test::Random(8).normals(288 * tokens + 3, 1.0f);
        for (int64_t offset = 0; offset < 4; ++offset) {
            const std::vector<float> moved(x.begin() + offset, x.begin() + offset + 288 * tokens);
            const F32Product unaligned{GetParam().run, x.data() + offset, 288, tokens};
            EXPECT_EQ(test::first_difference(run_whole(unaligned, w), run_whole(scalar(moved, tokens), w)),
                      "");
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Variants, MatmulF32Test,
                         testing::ValuesIn(matmul_f32_variants().begin(), matmul_f32_variants().end()),
                         variant_name<MatmulF32Variant>);

// int8 activations

class MatmulInt8Test : public testing::TestWithParam<MatmulInt8Variant> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam().tier)) {
            GTEST_SKIP() << "this CPU has no " << tier_name(GetParam().tier);
        }
    }
    Int8Product product(const Int8Tokens& x) const { return {GetParam().run, x}; }
    Int8Product scalar(const Int8Tokens& x) const {
        return {scalar_twin(matmul_int8_variants(), GetParam().format).run, x};
    }

    /// `x` is one token.
    void expect_near_oracle(const TestMatrix& w, const Int8Tokens& x) const {
        const std::vector<float> y = run_whole(product(x), w);
        // One rounding a group in the sum, one in its scale; which, if subnormal, is off by up to 2^-150
        // instead.
        const auto groups = static_cast<double>(block_count(w.cols) * kBlockGroups);
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

TEST_P(MatmulInt8Test, AgreesWithOracle) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        expect_near_oracle(w, test::QuantizedTokens(x, 1).view());
    });
}

TEST_P(MatmulInt8Test, EqualsScalarBitForBit) {
    for_each_shape(GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x) {
        const test::QuantizedTokens a(x, 1);
        EXPECT_EQ(test::first_difference(run_whole(product(a.view()), w), run_whole(scalar(a.view()), w)),
                  "");
    });
}

TEST_P(MatmulInt8Test, ManyTokensEqualScalarBitForBit) {
    for_each_token_count(
        GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x, int64_t tokens) {
            const test::QuantizedTokens a(x, tokens);
            EXPECT_EQ(test::first_difference(run_whole(product(a.view()), w), run_whole(scalar(a.view()), w)),
                      "");
        });
}

TEST_P(MatmulInt8Test, CutsEqualTheWhole) {
    for_each_token_count(
        GetParam().format, [&](const TestMatrix& w, const std::vector<float>& x, int64_t tokens) {
            const test::QuantizedTokens a(x, tokens);
            const std::vector<float> whole = run_whole(product(a.view()), w);
            EXPECT_EQ(test::first_difference(run_panels(product(a.view()), w), whole), "");
            for (const int64_t most : {1, 7, 64}) {
                EXPECT_EQ(test::first_difference(run_parts(product(a.view()), w, most), whole), "");
            }
        });
}

/// Largest codes of either sign on both sides: intermediate sums must not saturate.
TEST_P(MatmulInt8Test, HoldsTheLargestSums) {
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
        for (const int64_t tokens : {1, 2, 20}) {
            for (const float sign : {1.0f, -1.0f}) {
                const test::QuantizedTokens a(std::vector<float>(static_cast<size_t>(cols * tokens), sign),
                                              tokens);
                if (tokens == 1) expect_near_oracle(w, a.view());
                EXPECT_EQ(
                    test::first_difference(run_whole(product(a.view()), w), run_whole(scalar(a.view()), w)),
                    "");
            }
        }
    }
}

TEST_P(MatmulInt8Test, ShowsDamagedActivations) {
    const TestMatrix w = test::random_matrix(GetParam().format, 17, 160, 10);
    for (const int64_t tokens : {1, 3, 20}) {
        std::vector<float> x = test::Random(11).normals(160 * tokens, 1.0f);
        x[70] = std::numeric_limits<float>::infinity();
        const std::vector<float> y = run_whole(product(test::QuantizedTokens(x, tokens).view()), w);
        for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(std::isnan(y[i]), i < 17);
    }
}

TEST_P(MatmulInt8Test, ZeroActivationsGiveZero) {
    const TestMatrix w = test::random_matrix(GetParam().format, 33, 320, 12);
    for (const int64_t tokens : {1, 4, 16}) {
        const test::QuantizedTokens a(std::vector<float>(static_cast<size_t>(320 * tokens), 0.0f), tokens);
        for (const float value : run_whole(product(a.view()), w)) EXPECT_EQ(value, 0.0f);
    }
}

INSTANTIATE_TEST_SUITE_P(Variants, MatmulInt8Test,
                         testing::ValuesIn(matmul_int8_variants().begin(), matmul_int8_variants().end()),
                         variant_name<MatmulInt8Variant>);

}  // namespace
}  // namespace waste::kernels
