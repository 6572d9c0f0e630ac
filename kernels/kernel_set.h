// The kernels of one tier, resolved once: what an engine holds instead of looking tiers up per call.
#pragma once

#include <array>

#include "kernels/activation.h"
#include "kernels/attn_res.h"
#include "kernels/conv.h"
#include "kernels/kda.h"
#include "kernels/matmul.h"
#include "kernels/mla.h"
#include "kernels/norm.h"
#include "kernels/quantize.h"

namespace waste::kernels {

struct KernelSet {
    Tier tier;
    std::array<MatmulF32, kFormatCount> matmul_f32;    ///< indexed by Format
    std::array<MatmulInt8, kFormatCount> matmul_int8;  ///< null where format_info().int8_kernel is false
    KdaStep kda_step;
    KdaChunk kda_chunk;
    const ActivationKernels* activation;
    const AttnResKernels* attn_res;
    const ConvKernels* conv;
    const KdaGateKernels* kda_gate;
    const MlaKernels* mla;
    const NormKernels* norm;
    const QuantizeKernels* quantize;
};

/// The variants of `tier`, which must be supported; where it has none of its own, those of its base tier.
KernelSet kernels_for(Tier tier);

}  // namespace waste::kernels
