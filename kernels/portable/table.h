// The operations of this folder, each defined in the file of its header's name.
#pragma once

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {

extern const ActivationKernels kActivation;
extern const AttnResKernels kAttnRes;
extern const ConvKernels kConv;
extern const KdaGateKernels kKdaGate;
extern const MlaKernels kMla;
extern const NormKernels kNorm;
extern const QuantizeKernels kQuantize;

}  // namespace waste::kernels::WASTE_TIER
