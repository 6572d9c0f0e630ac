// Activation quantization for the integer kernels.
//
// Per group of 32 columns: scale = max|x| / 127, code = round(x * (127 / max|x|)) to nearest, ties to even. A
// group whose max|x| is below 2^-120 has scale 0 and codes 0. A group holding a NaN or Inf gets scale NaN and
// codes 0, so that the damage shows. Exact rules in f32, so every tier gives the same bits. Cost: 5 bytes a
// column.
#pragma once

#include <cstdint>

#include "kernels/panel.h"

namespace waste::kernels {

inline constexpr int64_t padded_cols(int64_t cols) {
    return (cols + kBlockCols - 1) / kBlockCols * kBlockCols;
}

struct QuantizeKernels {
    /// One vector x [cols] as token 0 of an Int8Tokens (matmul.h) whose memory holds `stride` vectors; the
    /// caller offsets the pointers for the others. Columns from cols to padded_cols are written as zeros.
    void (*int8)(const float* x, int64_t cols, int64_t stride, int8_t* codes, float* scales, int32_t* sums);
};

}  // namespace waste::kernels
