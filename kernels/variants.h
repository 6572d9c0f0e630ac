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

/// Formats with integer kernels.
inline constexpr int kInt8FormatCount = 3;

// A tier's rows of each table, one a format.
namespace scalar {
extern const MatvecF32Variant kMatvecF32[kFormatCount];
extern const MatvecInt8Variant kMatvecInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace scalar
namespace avx2 {
extern const MatvecF32Variant kMatvecF32[kFormatCount];
extern const MatvecInt8Variant kMatvecInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace avx2
namespace avx512 {
extern const MatvecF32Variant kMatvecF32[kFormatCount];
extern const MatvecInt8Variant kMatvecInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace avx512
namespace neon {
extern const MatvecF32Variant kMatvecF32[kFormatCount];
extern const MatvecInt8Variant kMatvecInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
}  // namespace neon

}  // namespace waste::kernels
