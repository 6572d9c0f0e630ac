// Small pieces that the products of this tier share. Four vectors are the 16 rows of a panel: part p has rows
// 4p to 4p + 3.
#pragma once

#include <arm_neon.h>

#include "kernels/variants.h"

namespace waste::kernels {
namespace {

inline constexpr int kParts = 4;

template <typename T>
inline const T* at(const std::byte* data) {
    return reinterpret_cast<const T*>(data);
}

inline float32x4_t widen_bf16(const std::byte* data) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at<uint16_t>(data)), 16));
}

/// Byte 0 stands for 2^-127, a subnormal; every other exponent is larger, so the maximum puts it right.
inline float32x4_t widen_e8m0(const std::byte* data) {
    uint32_t four;
    __builtin_memcpy(&four, data, sizeof four);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    const uint32x4_t bits = vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), 23);
    return vreinterpretq_f32_u32(vmaxq_u32(bits, vdupq_n_u32(0x00400000u)));
}

inline void store_rows(const float32x4_t (&total)[kParts], int64_t rows, float* y) {
    float all[kPanelRows];
    for (int part = 0; part < kParts; ++part) vst1q_f32(all + part * 4, total[part]);
    for (int64_t row = 0; row < kPanelRows && row < rows; ++row) y[row] = all[row];
}

}  // namespace
}  // namespace waste::kernels
