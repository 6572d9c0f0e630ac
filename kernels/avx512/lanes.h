// Small pieces that both products of this tier use. One vector is the 16 rows of a panel.
#pragma once

#include <immintrin.h>

#include "kernels/variants.h"

namespace waste::kernels::avx512 {
namespace {

inline __m512i load(const std::byte* at) {
    return _mm512_load_si512(at);
}

inline __m512 widen_bf16(const std::byte* at) {
    const __m256i bits = _mm256_load_si256(reinterpret_cast<const __m256i*>(at));
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

/// Byte 0 stands for 2^-127, a subnormal; every other exponent is larger, so the maximum puts it right.
inline __m512 widen_e8m0(const std::byte* at) {
    const __m512i exponent = _mm512_cvtepu8_epi32(_mm_load_si128(reinterpret_cast<const __m128i*>(at)));
    const __m512i bits = _mm512_max_epu32(_mm512_slli_epi32(exponent, 23), _mm512_set1_epi32(0x00400000));
    return _mm512_castsi512_ps(bits);
}

inline void store_rows(__m512 total, int64_t rows, float* y) {
    const auto mask = static_cast<__mmask16>(rows >= kPanelRows ? 0xffff : (1 << rows) - 1);
    _mm512_mask_storeu_ps(y, mask, total);
}

}  // namespace
}  // namespace waste::kernels::avx512
