// Activation quantization for the integer kernels.
//
// Per group of 32 columns: scale = max|x| / 127, code = round(x / scale) to nearest, ties to even; a group of
// zeros has scale 0 and codes 0. A group holding a NaN or Inf gets scale NaN, so that the damage shows.
#pragma once

#include <cstdint>

namespace waste::kernels {

inline constexpr int64_t padded_cols(int64_t cols) {
    return (cols + 127) / 128 * 128;
}

/// codes [padded_cols], scales and sums [padded_cols / 32]; see Int8Vector in matvec.h.
void quantize_int8(const float* x, int64_t cols, int8_t* codes, float* scales, int32_t* sums);

}  // namespace waste::kernels
