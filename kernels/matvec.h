// Matrix times vector over panels: the operation a decoded token spends its time in.
//
// f32:  y[r] = sum_c W[r][c] x[c], weights decoded to f32 in registers.
//       Per block of 128 columns two chains, even and odd columns, each acc = fma(w, x, acc) in ascending
//       order from zero; then total += even + odd, block after block.
// int8: y[r] = sum_g (sum_{c in g} code[r][c] a[c]) * (wscale[r][g] * ascale[g]) over groups g of 32 columns;
//       the inner sum is an exact integer, the outer is total = fma(float(dot), wscale * ascale, total) in
//       ascending order from zero. mxfp4 uses doubled codes (integers) and 0.5 * ascale.
//
// Shapes:    w [rows][cols] panels (panel.h); x f32 [cols], or quantized (quantize.h); y f32 [rows].
// Range:     panels [panel_begin, panel_end); rows past w.rows are not written. Ranges may run on different
//            threads; a row is always summed whole by one of them, so results do not depend on the split.
// Alignment: w.data 64 bytes; x, y none. y may not alias x.
// Numerics:  the order above is binding, so every tier gives the same bits. NaN and Inf propagate.
// Cost:      rows * cols multiply-adds; reads every weight byte once. Floor: bytes / DRAM bandwidth.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/panel.h"
#include "kernels/tier.h"

namespace waste::kernels {

/// An activation vector quantized per group of 32 columns, padded with zeros to a multiple of 128 columns.
struct Int8Vector {
    const int8_t* codes;  ///< [padded cols], -127..127
    const float* scales;  ///< [padded cols / 32]
    const int32_t* sums;  ///< [padded cols / 32], sum of the group's codes: undoes unsigned weight offsets
};

using MatvecF32 = void (*)(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
using MatvecInt8 = void (*)(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end,
                            float* y);

struct MatvecF32Variant {
    Tier tier;
    Format format;
    MatvecF32 run;
};
struct MatvecInt8Variant {
    Tier tier;
    Format format;
    MatvecInt8 run;
};

/// Every variant compiled into this binary; the caller checks tier_supported before running one.
std::span<const MatvecF32Variant> matvec_f32_variants();
std::span<const MatvecInt8Variant> matvec_int8_variants();

}  // namespace waste::kernels
