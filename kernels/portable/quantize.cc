#include "kernels/quantize.h"

#include <bit>
#include <limits>

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {
namespace {

constexpr uint32_t kInfinityBits = 0x7f800000u;

/// Bits of the largest magnitude; as integers, magnitudes order like floats and NaN comes out on top.
uint32_t largest_magnitude(const float* x) {
    uint32_t largest = 0;
    for (int i = 0; i < kGroupCols; ++i) {
        const uint32_t magnitude = std::bit_cast<uint32_t>(x[i]) & 0x7fffffffu;
        largest = magnitude > largest ? magnitude : largest;
    }
    return largest;
}

/// Rounds to the nearest integer, ties to even, by pushing the fraction out of the significand.
int32_t round_to_int(float x) {
    constexpr float kShift = 0x1.8p23f;
    return std::bit_cast<int32_t>(x + kShift) - std::bit_cast<int32_t>(kShift);
}

void quantize_group(const float* x, int8_t* codes, float* scale, int32_t* sum) {
    const uint32_t largest = largest_magnitude(x);
    const bool finite = largest < kInfinityBits;
    *scale = finite ? std::bit_cast<float>(largest) / 127.0f : std::numeric_limits<float>::quiet_NaN();
    *sum = 0;
    // Zero also where the division underflowed: such a group is below anything f32 could add up.
    if (!finite || *scale == 0.0f) {
        for (int i = 0; i < kGroupCols; ++i) codes[i] = 0;
        return;
    }
    int32_t total = 0;
    for (int i = 0; i < kGroupCols; ++i) {
        // A subnormal scale may be off by half, hence the limits.
        float ratio = x[i] / *scale;
        ratio = ratio < 127.0f ? ratio : 127.0f;
        ratio = ratio > -127.0f ? ratio : -127.0f;
        const int32_t code = round_to_int(ratio);
        codes[i] = static_cast<int8_t>(code);
        total += code;
    }
    *sum = total;
}

void quantize_int8(const float* x, int64_t cols, int64_t stride, int8_t* codes, float* scales,
                   int32_t* sums) {
    const int64_t groups = padded_cols(cols) / kGroupCols;
    for (int64_t group = 0; group < groups; ++group) {
        const int64_t begin = group * kGroupCols;
        const int64_t present = cols - begin;
        const int64_t block = group / kBlockGroups * stride;
        const int64_t at = block * kBlockGroups + group % kBlockGroups;
        int8_t* out = codes + block * kBlockCols + group % kBlockGroups * kGroupCols;
        if (present >= kGroupCols) {
            quantize_group(x + begin, out, scales + at, sums + at);
            continue;
        }
        float padded[kGroupCols] = {};
        for (int64_t i = 0; i < present; ++i) padded[i] = x[begin + i];
        quantize_group(padded, out, scales + at, sums + at);
    }
}

}  // namespace

const QuantizeKernels kQuantize{quantize_int8};

}  // namespace waste::kernels::WASTE_TIER
