// Matrix times a block of vectors over panels: the operation the engine spends its time in. One token is a
// matrix-vector product, bound by the weight bytes; from some dozen tokens on it is bound by multiply-adds.
//
// f32:  y[t][r] = sum_c W[r][c] x[t][c], weights decoded to f32.
//       Per block of 128 columns two chains, even and odd columns, each acc = fma(w, x, acc) in ascending
//       order from zero; then total += even + odd, block after block.
// int8: y[t][r] = sum_g (sum_{c in g} code[r][c] a[t][c]) * (wscale[r][g] * ascale[t][g]) over groups g of 32
//       columns; the inner sum is an exact integer, the outer is
//       total = fma(float(dot), wscale * ascale, total) in ascending order from zero.
//       mxfp4 uses doubled codes (integers) and 0.5 * ascale.
//
// Shapes:    w [rows][cols] panels (panel.h); x f32 [tokens][x_stride], or quantized (below);
//            y f32 [tokens][y_stride], of which columns 0 .. rows - 1 belong to the product.
// Range:     panels [panel_begin, panel_end) of all of x's tokens; rows past w.rows are not written. Ranges of
//            panels and of tokens (Int8Tokens::part) may run on different threads.
// Alignment: w.data 64 bytes; x, y none. y may not alias x.
// Numerics:  the order above is binding, so every tier gives the same bits, and so does every cut of the
//            tokens into calls. NaN and Inf propagate.
// Cost:      tokens * rows * cols multiply-adds; reads every weight byte once per 48 tokens or so from memory
//            or cache. Floors: weight bytes / DRAM bandwidth, multiply-adds / integer peak.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/panel.h"
#include "kernels/tier.h"

namespace waste::kernels {

/// Vectors quantized per group of 32 columns (quantize.h), columns padded with zeros to whole blocks of 128.
/// The same block of all vectors lies together, so that a product over many vectors walks memory in order;
/// for one vector this is the plain order of its columns.
struct Int8Tokens {
    const int8_t* codes;  ///< [blocks][stride][128], -127..127
    const float* scales;  ///< [blocks][stride][4]
    const int32_t* sums;  ///< [blocks][stride][4], sum of the group's codes: undoes unsigned weight offsets
    int64_t tokens;       ///< vectors in this view
    int64_t stride;       ///< vectors in the memory behind it

    Int8Tokens part(int64_t begin, int64_t count) const {
        return {codes + begin * kBlockCols, scales + begin * kBlockGroups, sums + begin * kBlockGroups, count,
                stride};
    }
};

using MatmulF32 = void (*)(const Panels& w, const float* x, int64_t x_stride, int64_t tokens,
                           int64_t panel_begin, int64_t panel_end, float* y, int64_t y_stride);
using MatmulInt8 = void (*)(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end,
                            float* y, int64_t y_stride);

struct MatmulF32Variant {
    Tier tier;
    Format format;
    MatmulF32 run;
};
struct MatmulInt8Variant {
    Tier tier;
    Format format;
    MatmulInt8 run;
};

/// Every variant compiled into this binary; the caller checks tier_supported before running one.
std::span<const MatmulF32Variant> matmul_f32_variants();
std::span<const MatmulInt8Variant> matmul_int8_variants();

}  // namespace waste::kernels
