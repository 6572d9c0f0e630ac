// What the tiers define and the tables list. Private to this room.
//
// Tier files see nothing but declarations: an inline function used there would become a weak symbol, and the
// linker might hand the baseline code a copy that the baseline CPU cannot run.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/activation.h"
#include "kernels/attn_res.h"
#include "kernels/conv.h"
#include "kernels/kda.h"
#include "kernels/matmul.h"
#include "kernels/mla.h"
#include "kernels/norm.h"
#include "kernels/panel.h"
#include "kernels/quantize.h"

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

/// Columns of the state that the vector form of the KDA chunk kernel takes through all blocks at once.
inline constexpr int64_t kKdaStripCols = 32;

/// What kernels/portable has, compiled for one tier (portable/table.cc).
struct PortableKernels {
    Tier tier;
    const ActivationKernels* activation;
    const AttnResKernels* attn_res;
    const ConvKernels* conv;
    const KdaGateKernels* kda_gate;
    const MlaKernels* mla;
    const NormKernels* norm;
    const QuantizeKernels* quantize;
};
/// The tiers that kernels/portable is compiled for, slowest first.
std::span<const PortableKernels* const> portable_kernels();

// A tier's rows of each table, one a format; its single kernels; and its compilation of kernels/portable.
namespace scalar {
extern const MatmulF32Variant kMatmulF32[kFormatCount];
extern const MatmulInt8Variant kMatmulInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
void kda_chunk(const KdaChunkHead& head, float* state, float* scratch);
extern const PortableKernels kPortable;
}  // namespace scalar
namespace avx2 {
extern const MatmulF32Variant kMatmulF32[kFormatCount];
extern const MatmulInt8Variant kMatmulInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
void kda_chunk(const KdaChunkHead& head, float* state, float* scratch);
extern const PortableKernels kPortable;
}  // namespace avx2
namespace avxvnni {
extern const MatmulInt8Variant kMatmulInt8[kInt8FormatCount];
}
namespace avx512 {
extern const MatmulF32Variant kMatmulF32[kFormatCount];
extern const MatmulInt8Variant kMatmulInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
void kda_chunk(const KdaChunkHead& head, float* state, float* scratch);
extern const PortableKernels kPortable;
}  // namespace avx512
namespace neon {
extern const MatmulF32Variant kMatmulF32[kFormatCount];
extern const MatmulInt8Variant kMatmulInt8[kInt8FormatCount];
void kda_step(const KdaHead& head, float* state, float* out);
void kda_chunk(const KdaChunkHead& head, float* state, float* scratch);
extern const PortableKernels kPortable;
}  // namespace neon
namespace i8mm {
extern const MatmulInt8Variant kMatmulInt8[kInt8FormatCount];
}

}  // namespace waste::kernels
