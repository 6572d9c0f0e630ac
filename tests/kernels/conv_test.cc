#include "kernels/conv.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

/// The window of a layer, as an engine would keep it.
class Window {
  public:
    Window(int64_t taps, int64_t channels)
        : taps_(taps), channels_(channels), ring_(static_cast<size_t>((taps - 1) * channels), 0.0f) {}

    /// states [channels][taps - 1], oldest first
    void set(std::span<const float> states) {
        oldest_ = 0;
        for (int64_t c = 0; c < channels_; ++c) {
            for (int64_t row = 0; row < taps_ - 1; ++row) {
                ring_[static_cast<size_t>(row * channels_ + c)] =
                    states[static_cast<size_t>(c * (taps_ - 1) + row)];
            }
        }
    }

    std::vector<float> get() const {
        std::vector<float> states;
        for (int64_t c = 0; c < channels_; ++c) {
            for (int64_t j = 0; j < taps_ - 1; ++j) {
                states.push_back(ring_[static_cast<size_t>((oldest_ + j) % (taps_ - 1) * channels_ + c)]);
            }
        }
        return states;
    }

    void step(const float* x, const float* weight, float* y, int64_t split) {
        short_conv_step(x, weight, taps_, oldest_, channels_, 0, split, ring_.data(), y);
        short_conv_step(x, weight, taps_, oldest_, channels_, split, channels_, ring_.data(), y);
        if (taps_ > 1) oldest_ = (oldest_ + 1) % (taps_ - 1);
    }

  private:
    int64_t taps_;
    int64_t channels_;
    int64_t oldest_ = 0;
    std::vector<float> ring_;
};

TEST(ConvTest, AgreesWithGoldensOverFourCalls) {
    const test::GoldenFile& goldens = test::kernel_goldens();
    const auto weight = goldens.f32("conv.weight");
    const int64_t channels = weight.dim(0);
    Window window(4, channels);
    window.set(goldens.f32("conv.state0").values);
    for (int call = 0; call < 4; ++call) {
        SCOPED_TRACE(call);
        const std::string index = std::to_string(call);
        const auto x = goldens.f32("conv.x" + index);
        std::vector<float> y(x.values.size());
        for (int64_t t = 0; t < x.dim(0); ++t) {
            window.step(x.data() + t * channels, weight.data(), y.data() + t * channels, t % channels);
        }
        EXPECT_LT(test::relative_error(y, goldens.f32("conv.y" + index).values), 5e-6);
        EXPECT_EQ(window.get(), goldens.f32("conv.state" + std::to_string(call + 1)).values)
            << "inputs are kept";
    }
}

TEST(ConvTest, AgreesWithOracleForAnyTaps) {
    test::Random random(1);
    const int64_t channels = 7, tokens = 12;
    for (const int64_t taps : {1, 2, 3, 4, 6}) {
        SCOPED_TRACE(taps);
        const std::vector<float> weight = random.normals(channels * taps, 1.0f);
        const std::vector<float> x = random.normals(tokens * channels, 1.0f);
        Window window(taps, channels);
        for (int64_t t = 0; t < tokens; ++t) {
            std::vector<float> y(x.begin() + t * channels, x.begin() + (t + 1) * channels);
            window.step(y.data(), weight.data(), y.data(), 3);  // y is x
            for (int64_t c = 0; c < channels; ++c) {
                double sum = 0.0;
                double magnitude = 0.0;
                for (int64_t j = 0; j < taps; ++j) {
                    const int64_t source = t - taps + 1 + j;
                    if (source < 0) continue;
                    const double term = double{weight[static_cast<size_t>(c * taps + j)]} *
                                        double{x[static_cast<size_t>(source * channels + c)]};
                    sum += term;
                    magnitude += std::abs(term);
                }
                const double expected = sum / (1.0 + std::exp(-sum));
                // The slope of SiLU is at most 1.1; its own evaluation adds a few roundings.
                const double limit = test::kRounding * (1.1 * static_cast<double>(taps + 1) * magnitude +
                                                        6.0 * std::abs(expected));
                EXPECT_NEAR(y[static_cast<size_t>(c)], expected, limit);
            }
        }
    }
}

}  // namespace
}  // namespace waste::kernels
