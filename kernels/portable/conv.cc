#include "kernels/conv.h"

#include "kernels/portable/math.h"
#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {
namespace {

/// The taps of the released models, whose weights are transposed once a call.
constexpr int64_t kUsualTaps = 4;

/// weight[c][tap] of the strip's channels c.
template <typename AnyStrip>
Floats gather_tap(const float* weight, int64_t taps, int64_t tap, AnyStrip strip) {
    float lane[kLanes] = {};
    for (int64_t i = 0; i < strip.count; ++i) lane[i] = weight[(strip.begin + i) * taps + tap];
    return load(lane);
}

/// Lanes 0, 2, 4 … (kFirst = 1: lanes 1, 3, 5 …) of a, then those of b.
template <int kFirst, int... kLane>
Floats every_second(Floats a, Floats b, std::integer_sequence<int, kLane...>) {
    return __builtin_shufflevector(a, b, (2 * kLane + kFirst)...);
}

struct UsualWeights {
    Floats tap[kUsualTaps];
};

UsualWeights usual_weights(const float* weight, Strip strip) {
    constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
    const float* from = weight + strip.begin * kUsualTaps;
    const Floats a = load(from), b = load(from + kLanes);
    const Floats c = load(from + 2 * kLanes), d = load(from + 3 * kLanes);
    const Floats even_low = every_second<0>(a, b, kAll), even_high = every_second<0>(c, d, kAll);
    const Floats odd_low = every_second<1>(a, b, kAll), odd_high = every_second<1>(c, d, kAll);
    return {{every_second<0>(even_low, even_high, kAll), every_second<0>(odd_low, odd_high, kAll),
             every_second<1>(even_low, even_high, kAll), every_second<1>(odd_low, odd_high, kAll)}};
}

UsualWeights usual_weights(const float* weight, PartStrip strip) {
    UsualWeights weights;
    for (int64_t j = 0; j < kUsualTaps; ++j) weights.tap[j] = gather_tap(weight, kUsualTaps, j, strip);
    return weights;
}

/// The inputs before a token, oldest first, where they lie.
template <typename AnyStrip>
struct RingWindow {
    const ConvCall& call;
    AnyStrip strip;
    int64_t oldest;

    float* row(int64_t age) const {
        const int64_t rows = call.taps - 1;
        return call.ring + (oldest + age < rows ? oldest + age : oldest + age - rows) * call.ring_stride;
    }
    Floats input(int64_t age) const { return strip.load(row(age)); }
    void push(Floats newest) {
        strip.store(row(0), newest);
        oldest = oldest + 1 < call.taps - 1 ? oldest + 1 : 0;
    }
};

/// The same in registers, for the usual taps.
template <typename AnyStrip>
struct RegisterWindow {
    Floats inputs[kUsualTaps - 1];

    explicit RegisterWindow(const RingWindow<AnyStrip>& ring) {
        for (int64_t j = 0; j < kUsualTaps - 1; ++j) inputs[j] = ring.input(j);
    }
    Floats input(int64_t age) const { return inputs[age]; }
    void push(Floats newest) {
#pragma GCC unroll 4
        for (int64_t j = 1; j < kUsualTaps - 1; ++j) inputs[j - 1] = inputs[j];
        inputs[kUsualTaps - 2] = newest;
    }
};

/// All tokens of some channels; weight_of(tap) has their weights.
template <typename AnyStrip, typename Window, typename WeightOf>
[[gnu::always_inline]] inline void conv_strip(const ConvCall& call, int64_t taps, const float* x,
                                              int64_t x_stride, float* y, int64_t y_stride, AnyStrip strip,
                                              Window& window, const WeightOf& weight_of) {
    for (int64_t t = 0; t < call.tokens; ++t) {
        const Floats newest = strip.load(x + t * x_stride);
        Floats sum = {};
#pragma GCC unroll 4
        for (int64_t j = 0; j < taps - 1; ++j) sum = fma(weight_of(j), window.input(j), sum);
        sum = fma(weight_of(taps - 1), newest, sum);
        window.push(newest);
        strip.store(y + t * y_stride, sum * sigmoid(sum).value());
    }
}

/// Any number of taps.
void conv_any(const ConvCall& call, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    const int64_t oldest = call.position % (call.taps - 1);
    for_strips(0, call.channels, [&](auto strip) {
        RingWindow<decltype(strip)> window{call, strip, oldest};
        conv_strip(call, call.taps, x, x_stride, y, y_stride, strip, window,
                   [&](int64_t j) { return gather_tap(call.weight, call.taps, j, strip); });
    });
}

void conv_usual(const ConvCall& call, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    constexpr int64_t kRows = kUsualTaps - 1;
    const int64_t oldest = call.position % kRows;
    // Tokens whose inputs stay in the ring: the last few.
    const int64_t kept = call.tokens < kRows ? call.tokens : kRows;
    const int64_t first_row = (call.position + call.tokens - kept) % kRows;
    for_strips(0, call.channels, [&](auto strip) {
        const UsualWeights weights = usual_weights(call.weight, strip);
        const RingWindow<decltype(strip)> before{call, strip, oldest};
        RegisterWindow<decltype(strip)> window(before);
        conv_strip(call, kUsualTaps, x, x_stride, y, y_stride, strip, window,
                   [&](int64_t j) { return weights.tap[j]; });
        RingWindow<decltype(strip)> after{call, strip, first_row};
#pragma GCC unroll 4
        for (int64_t j = 0; j < kRows; ++j) {
            if (j >= kRows - kept) after.push(window.input(j));
        }
    });
}

void short_conv(const ConvCall& call, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    const auto run = call.taps == kUsualTaps ? conv_usual : conv_any;
    run(call, x, x_stride, y, y_stride);
}

}  // namespace

const ConvKernels kConv{short_conv};

}  // namespace waste::kernels::WASTE_TIER
