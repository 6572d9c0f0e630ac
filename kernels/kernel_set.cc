#include "kernels/kernel_set.h"

#include "kernels/variants.h"

namespace waste::kernels {
namespace {

/// Takes what `tier` has into the set.
void take_variants(Tier tier, KernelSet& set) {
    for (const MatmulF32Variant& variant : matmul_f32_variants()) {
        if (variant.tier == tier) set.matmul_f32[static_cast<size_t>(variant.format)] = variant.run;
    }
    for (const MatmulInt8Variant& variant : matmul_int8_variants()) {
        if (variant.tier == tier) set.matmul_int8[static_cast<size_t>(variant.format)] = variant.run;
    }
    for (const KdaStepVariant& variant : kda_step_variants()) {
        if (variant.tier == tier) set.kda_step = variant.run;
    }
    for (const KdaChunkVariant& variant : kda_chunk_variants()) {
        if (variant.tier == tier) set.kda_chunk = variant.run;
    }
    for (const PortableKernels* portable : portable_kernels()) {
        if (portable->tier != tier) continue;
        set.activation = portable->activation;
        set.attn_res = portable->attn_res;
        set.conv = portable->conv;
        set.kda_gate = portable->kda_gate;
        set.mla = portable->mla;
        set.norm = portable->norm;
        set.quantize = portable->quantize;
    }
}

/// The base tiers' kernels first, so that the tier's own replace them.
void take_chain(Tier tier, KernelSet& set) {
    if (base_tier(tier) != tier) take_chain(base_tier(tier), set);
    take_variants(tier, set);
}

}  // namespace

KernelSet kernels_for(Tier tier) {
    KernelSet set{};
    set.tier = tier;
    take_chain(tier, set);
    return set;
}

}  // namespace waste::kernels
