// The kernels of one tier, resolved once: what an engine holds instead of looking tiers up per call.
#pragma once

#include <array>

#include "kernels/kda.h"
#include "kernels/matvec.h"

namespace waste::kernels {

struct KernelSet {
    Tier tier;
    std::array<MatvecF32, kFormatCount> matvec_f32;    ///< indexed by Format
    std::array<MatvecInt8, kFormatCount> matvec_int8;  ///< null where format_info().int8_kernel is false
    KdaStep kda_step;
};

/// The variants of `tier`, which must be supported; an operation without a row in that tier gets its scalar
/// one.
KernelSet kernels_for(Tier tier);

}  // namespace waste::kernels
