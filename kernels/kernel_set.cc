#include "kernels/kernel_set.h"

namespace waste::kernels {
namespace {

/// Takes a table's rows of one tier into the set.
void take_variants(Tier tier, KernelSet& set) {
    for (const MatvecF32Variant& variant : matvec_f32_variants()) {
        if (variant.tier == tier) set.matvec_f32[static_cast<size_t>(variant.format)] = variant.run;
    }
    for (const MatvecInt8Variant& variant : matvec_int8_variants()) {
        if (variant.tier == tier) set.matvec_int8[static_cast<size_t>(variant.format)] = variant.run;
    }
    for (const KdaStepVariant& variant : kda_step_variants()) {
        if (variant.tier == tier) set.kda_step = variant.run;
    }
}

}  // namespace

KernelSet kernels_for(Tier tier) {
    KernelSet set{tier, {}, {}, nullptr};
    take_variants(Tier::scalar, set);
    take_variants(tier, set);
    return set;
}

}  // namespace waste::kernels
