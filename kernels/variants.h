// What the tiers define and the tables list. Private to this room.
//
// Tier files see nothing but declarations: an inline function used there would become a weak symbol, and the
// linker might hand the baseline code a copy that the baseline CPU cannot run.
#pragma once

#include <cstdint>

#include "kernels/kda.h"
#include "kernels/matvec.h"
#include "kernels/panel.h"

namespace waste::kernels {

// Bytes of a block and of the scales at its front; the layouts are drawn in panel.h.
inline constexpr int64_t kF32BlockBytes = kBlockCols * kPanelRows * 4;
inline constexpr int64_t kBf16BlockBytes = kBlockCols * kPanelRows * 2;
inline constexpr int64_t kQ8ScaleBytes = 2 * kPanelRows * 2;
inline constexpr int64_t kQ8BlockBytes = kQ8ScaleBytes + kBlockCols * kPanelRows;
inline constexpr int64_t kQ4ScaleBytes = 4 * kPanelRows * 2;
inline constexpr int64_t kQ4BlockBytes = kQ4ScaleBytes + kBlockCols * kPanelRows / 2;
inline constexpr int64_t kMxfp4ScaleBytes = 4 * kPanelRows;
inline constexpr int64_t kMxfp4BlockBytes = kMxfp4ScaleBytes + kBlockCols * kPanelRows / 2;

/// Nibbles of one group of 32 columns.
inline constexpr int64_t kNibbleGroupBytes = kGroupCols * kPanelRows / 2;

namespace scalar {
void matvec_f32_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_bf16(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q8(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_mxfp4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q8(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_mxfp4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end,
                       float* y);
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace scalar

namespace avx2 {
void matvec_f32_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_bf16(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q8(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_mxfp4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q8(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_mxfp4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end,
                       float* y);
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace avx2

namespace avx512 {
void matvec_f32_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_bf16(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q8(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_mxfp4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q8(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_mxfp4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end,
                       float* y);
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace avx512

namespace neon {
void matvec_f32_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_bf16(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q8(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_q4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_f32_mxfp4(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q8(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_q4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end, float* y);
void matvec_int8_mxfp4(const Panels& w, const Int8Vector& x, int64_t panel_begin, int64_t panel_end,
                       float* y);
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace neon

}  // namespace waste::kernels
