// Small pieces that the products of this tier share. Two vectors are the 16 rows of a panel: `half` 0 has rows
// 0-7, `half` 1 rows 8-15.
#pragma once

#include <immintrin.h>

#include "kernels/variants.h"

namespace waste::kernels {
namespace {

inline __m256i load(const std::byte* at) {
    return _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
}
inline __m128i load_half(const std::byte* at) {
    return _mm_load_si128(reinterpret_cast<const __m128i*>(at));
}

inline __m256 widen_bf16(const std::byte* at) {
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load_half(at)), 16));
}

/// Byte 0 stands for 2^-127, a subnormal; every other exponent is larger, so the maximum puts it right.
inline __m256 widen_e8m0(const std::byte* at) {
    const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(at));
    const __m256i bits = _mm256_slli_epi32(_mm256_cvtepu8_epi32(bytes), 23);
    return _mm256_castsi256_ps(_mm256_max_epu32(bits, _mm256_set1_epi32(0x00400000)));
}

inline void store_rows(const __m256 (&total)[2], int64_t rows, float* y) {
    for (int half = 0; half < 2; ++half, rows -= 8, y += 8) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const auto present = static_cast<int32_t>(rows < 8 ? rows : 8);
        _mm256_maskstore_ps(y, _mm256_cmpgt_epi32(_mm256_set1_epi32(present), lane), total[half]);
    }
}

}  // namespace
}  // namespace waste::kernels
