#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {

const PortableKernels kPortable{Tier::WASTE_TIER, &kActivation, &kAttnRes, &kConv,
                                &kKdaGate,        &kMla,        &kNorm,    &kQuantize};

}  // namespace waste::kernels::WASTE_TIER
