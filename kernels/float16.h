// bf16 and f16 as bit patterns. Widening is exact; narrowing rounds to nearest, ties to even.
#pragma once

#include <bit>
#include <cstdint>

namespace waste::kernels {

inline float bf16_to_f32(uint16_t bits) {
    return std::bit_cast<float>(uint32_t{bits} << 16);
}

inline uint16_t f32_to_bf16(float value) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return static_cast<uint16_t>((bits >> 16) | 0x40u);  // stays NaN
    return static_cast<uint16_t>((bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16);
}

inline float f16_to_f32(uint16_t bits) {
    const uint32_t sign = uint32_t{bits & 0x8000u} << 16;
    const uint32_t magnitude = bits & 0x7fffu;
    if (magnitude >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13);
    // Shifted into f32 position the exponent is 112 too small; the product restores it, subnormals included.
    const float scaled = std::bit_cast<float>(magnitude << 13) * 0x1p112f;
    return std::bit_cast<float>(std::bit_cast<uint32_t>(scaled) | sign);
}

}  // namespace waste::kernels
