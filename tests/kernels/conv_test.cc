// f64 oracle and goldens -> scalar within derived bounds; scalar -> every tier bit for bit.
#include "kernels/conv.h"

#include <cmath>
#include <string>

#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"
#include "tests/support/tiers.h"

namespace waste::kernels {
namespace {

/// A layer's window, as an engine would keep it, with a gap after each row.
class Window {
  public:
    Window(const ConvKernels& kernels, int64_t taps, int64_t channels)
        : kernels_(kernels), taps_(taps), channels_(channels), ring_((taps - 1) * (channels + kGap)) {
        std::fill_n(ring_.data(), (taps - 1) * (channels + kGap), 0.0f);
    }

    /// states [channels][taps - 1], oldest first
    void set(std::span<const float> states) {
        for (int64_t c = 0; c < channels_; ++c) {
            for (int64_t row = 0; row < taps_ - 1; ++row) {
                at(row, c) = states[static_cast<size_t>(c * (taps_ - 1) + row)];
            }
        }
    }
    std::vector<float> get() {
        std::vector<float> states;
        for (int64_t c = 0; c < channels_; ++c) {
            for (int64_t j = 0; j < taps_ - 1; ++j) states.push_back(at((position_ + j) % (taps_ - 1), c));
        }
        return states;
    }

    /// The next tokens: channels [0, split), then the others.
    void run(const float* x, int64_t x_stride, const float* weight, int64_t tokens, int64_t split, float* y,
             int64_t y_stride) {
        for (const auto& [begin, end] : {std::pair{int64_t{0}, split}, std::pair{split, channels_}}) {
            const ConvCall call{weight + begin * taps_,
                                ring_.data() + begin,
                                channels_ + kGap,
                                taps_,
                                end - begin,
                                position_,
                                tokens};
            kernels_.short_conv(call, x + begin, x_stride, y + begin, y_stride);
        }
        position_ += tokens;
        EXPECT_TRUE(ring_.guards_intact());
    }

  private:
    static constexpr int64_t kGap = 3;
    float& at(int64_t row, int64_t c) { return ring_.data()[row * (channels_ + kGap) + c]; }

    const ConvKernels& kernels_;
    int64_t taps_;
    int64_t channels_;
    int64_t position_ = 0;
    test::GuardedFloats ring_;
};

class ConvTest : public test::TierTest {};

TEST_P(ConvTest, AgreesWithGoldensOverFourCalls) {
    const test::GoldenFile& goldens = test::kernel_goldens();
    const auto weight = goldens.f32("conv.weight");
    const int64_t channels = weight.dim(0);
    Window window(*GetParam().conv, 4, channels);
    window.set(goldens.f32("conv.state0").values);
    for (int call = 0; call < 4; ++call) {
        SCOPED_TRACE(call);
        const std::string index = std::to_string(call);
        const auto x = goldens.f32("conv.x" + index);
        std::vector<float> y(x.values.size());
        window.run(x.data(), channels, weight.data(), x.dim(0), call, y.data(), channels);
        EXPECT_LT(test::relative_error(y, goldens.f32("conv.y" + index).values), 5e-6);
        EXPECT_EQ(window.get(), goldens.f32("conv.state" + std::to_string(call + 1)).values)
            << "inputs are kept";
    }
}

TEST_P(ConvTest, AgreesWithOracleForAnyTaps) {
    test::Random random(1);
    const int64_t channels = 39, tokens = 12;
    for (const int64_t taps : {2, 3, 4, 6}) {
        SCOPED_TRACE(taps);
        const std::vector<float> weight = random.normals(channels * taps, 1.0f);
        const std::vector<float> x = random.normals(tokens * channels, 1.0f);
        Window window(*GetParam().conv, taps, channels);
        std::vector<float> y = x;
        int64_t done = 0;
        for (const int64_t part : {1, 2, 5, 4}) {
            float* rows = y.data() + done * channels;
            window.run(rows, channels, weight.data(), part, 18, rows, channels);  // y is x
            done += part;
        }
        ASSERT_EQ(done, tokens);
        for (int64_t t = 0; t < tokens; ++t) {
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
                const double limit = test::kRounding *
                                     (1.1 * static_cast<double>(taps) * magnitude + 6.0 * std::abs(expected));
                EXPECT_NEAR(y[static_cast<size_t>(t * channels + c)], expected, limit);
            }
        }
    }
}

TEST_P(ConvTest, EqualsScalarBitForBit) {
    test::Random random(2);
    for (const int64_t taps : {2, 4, 5}) {
        for (const int64_t channels : {1, 4, 15, 16, 17, 35, 64}) {
            SCOPED_TRACE(testing::Message() << taps << " taps, " << channels << " channels");
            const int64_t tokens = 9, stride = channels + 2;
            const std::vector<float> weight = random.normals(channels * taps, 1.0f);
            const std::vector<float> x = random.normals(tokens * stride, 1.0f);
            const auto run = [&](const ConvKernels& kernels, std::span<const int64_t> parts) {
                Window window(kernels, taps, channels);
                test::GuardedFloats y(tokens * stride);
                int64_t done = 0;
                for (const int64_t part : parts) {
                    window.run(x.data() + done * stride, stride, weight.data(), part, channels / 3,
                               y.data() + done * stride, stride);
                    done += part;
                }
                EXPECT_TRUE(y.guards_intact());
                std::vector<float> all = window.get();
                all.insert(all.end(), y.values().begin(), y.values().end());
                return all;
            };
            const std::vector<float> expected = run(*scalar().conv, std::vector<int64_t>{9});
            EXPECT_EQ(test::first_difference(run(*GetParam().conv, std::vector<int64_t>{9}), expected), "");
            EXPECT_EQ(test::first_difference(run(*GetParam().conv, std::vector<int64_t>{1, 3, 5}), expected),
                      "")
                << "however the tokens are cut";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(Tiers, ConvTest, test::all_tiers(), test::tier_of);

}  // namespace
}  // namespace waste::kernels
