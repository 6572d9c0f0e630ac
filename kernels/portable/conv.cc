#include "kernels/conv.h"

#include "kernels/portable/math.h"
#include "kernels/variants.h"

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

UsualWeights transpose_weights(const float* weight, Strip strip) {
    constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
    const float* from = weight + strip.begin * kUsualTaps;
    const Floats a = load(from), b = load(from + kLanes);
    const Floats c = load(from + 2 * kLanes), d = load(from + 3 * kLanes);
    const Floats even_low = every_second<0>(a, b, kAll), even_high = every_second<0>(c, d, kAll);
    const Floats odd_low = every_second<1>(a, b, kAll), odd_high = every_second<1>(c, d, kAll);
    return {{every_second<0>(even_low, even_high, kAll), every_second<0>(odd_low, odd_high, kAll),
             every_second<1>(even_low, even_high, kAll), every_second<1>(odd_low, odd_high, kAll)}};
}

UsualWeights transpose_weights(const float* weight, PartStrip strip) {
    UsualWeights weights;
    for (int64_t j = 0; j < kUsualTaps; ++j) weights.tap[j] = gather_tap(weight, kUsualTaps, j, strip);
    return weights;
}

/// All tokens of some channels; weight_of(tap) has their weights.
template <typename AnyStrip, typename WeightOf>
void conv_strip(const ConvCall& call, int64_t taps, const float* x, int64_t x_stride, float* y,
                int64_t y_stride, AnyStrip strip, const WeightOf& weight_of) {
    const int64_t rows = taps - 1;
    int64_t oldest = call.position % rows;
    for (int64_t t = 0; t < call.tokens; ++t) {
        const Floats newest = strip.load(x + t * x_stride);
        Floats sum = {};
        int64_t row = oldest;
#pragma GCC unroll 4
        for (int64_t j = 0; j < rows; ++j) {
            sum = fma(weight_of(j), strip.load(call.ring + row * call.ring_stride), sum);
            row = row + 1 == rows ? 0 : row + 1;
        }
        sum = fma(weight_of(rows), newest, sum);
        strip.store(call.ring + oldest * call.ring_stride, newest);
        oldest = row + 1 == rows ? 0 : row + 1;
        strip.store(y + t * y_stride, sum * sigmoid(sum).value());
    }
}

void short_conv(const ConvCall& call, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    if (call.taps == kUsualTaps) {
        for_strips(0, call.channels, [&](auto strip) {
            const UsualWeights weights = transpose_weights(call.weight, strip);
            conv_strip(call, kUsualTaps, x, x_stride, y, y_stride, strip,
                       [&](int64_t j) { return weights.tap[j]; });
        });
    } else {
        for_strips(0, call.channels, [&](auto strip) {
            conv_strip(call, call.taps, x, x_stride, y, y_stride, strip,
                       [&](int64_t j) { return gather_tap(call.weight, call.taps, j, strip); });
        });
    }
}

}  // namespace

const ConvKernels kConv{short_conv};

}  // namespace waste::kernels::WASTE_TIER
