// The functions of kernels/portable/math.h against the library's in f64, over floats of every size. The
// limits are the largest errors over all floats, which `math_test` with kStride = 1 finds.
#define WASTE_TIER scalar
#include "kernels/portable/math.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>
#include <limits>

namespace waste::kernels {
namespace {

/// A prime, so that all exponents and many significands come up.
constexpr uint64_t kStride = 16411;

/// The distance between floats near `value`.
double ulp(double value) {
    return std::max(std::ldexp(1.0, std::ilogb(value) - 23), 0x1p-149);
}

/// Largest error of `function` in ulps over every kStride-th float; infinite where a special value is wrong.
template <typename Function, typename Oracle>
double largest_error(const Function& function, const Oracle& oracle) {
    double largest = 0.0;
    for (uint64_t bits = 0; bits < uint64_t{1} << 32; bits += kStride * kLanes) {
        float x[kLanes], y[kLanes];
        for (uint64_t i = 0; i < kLanes; ++i) {
            x[i] = std::bit_cast<float>(static_cast<uint32_t>(bits + i * kStride));
        }
        store(y, function(load(x)));
        for (int i = 0; i < kLanes; ++i) {
            const double expected = oracle(double{x[i]});
            if (static_cast<float>(expected) == y[i] || (std::isnan(expected) && std::isnan(y[i]))) continue;
            const double error = std::abs(y[i] - expected) / ulp(expected);
            largest = error < std::numeric_limits<double>::infinity() ? std::max(largest, error) : error;
        }
    }
    return largest;
}

TEST(MathTest, ExpOfOne) {
    EXPECT_LT(largest_error(
                  [](Floats x) {
                      for (int i = 0; i < kLanes; ++i) x[i] = exp1(x[i]);
                      return x;
                  },
                  [](double x) { return std::exp(x); }),
              1.0);
}

TEST(MathTest, ExpOfNonpositive) {
    EXPECT_LT(largest_error([](Floats x) { return exp_nonpositive(negative_magnitude(x)); },
                            [](double x) { return std::exp(-std::abs(x)); }),
              1.0);
}

TEST(MathTest, Sigmoid) {
    EXPECT_LT(largest_error([](Floats x) { return sigmoid(x).value(); },
                            [](double x) {
                                const double e = std::exp(-std::abs(x));
                                return (x >= 0.0 ? 1.0 : e) / (1.0 + e);
                            }),
              2.35);
}

TEST(MathTest, Tanh) {
    EXPECT_LT(largest_error([](Floats x) { return tanh(x).value(); }, [](double x) { return std::tanh(x); }),
              2.55);
}

TEST(MathTest, Softplus) {
    EXPECT_LT(largest_error([](Floats x) { return softplus(x); },
                            [](double x) {
                                return std::isnan(x) ? x
                                                     : std::max(x, 0.0) + std::log1p(std::exp(-std::abs(x)));
                            }),
              2.7);
}

TEST(MathTest, SpecialValues) {
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    EXPECT_EQ(exp1(kInfinity), kInfinity);
    EXPECT_EQ(exp1(-kInfinity), 0.0f);
    EXPECT_EQ(exp1(0.0f), 1.0f);
    EXPECT_EQ(exp1(89.0f), kInfinity);
    EXPECT_EQ(exp1(-103.0f), 0x1p-149f) << "the least subnormal";
    EXPECT_EQ(exp1(-105.0f), 0.0f);
    const auto tanh1 = [](float x) { return tanh(all(x)).value()[0]; };
    EXPECT_EQ(tanh1(kInfinity), 1.0f);
    EXPECT_EQ(tanh1(-kInfinity), -1.0f);
    EXPECT_TRUE(std::signbit(tanh1(-0.0f)));
    EXPECT_FALSE(std::signbit(tanh1(0.0f)));
    const auto softplus1 = [](float x) { return softplus(all(x))[0]; };
    EXPECT_EQ(softplus1(kInfinity), kInfinity);
    EXPECT_EQ(softplus1(-kInfinity), 0.0f);
}

}  // namespace
}  // namespace waste::kernels
