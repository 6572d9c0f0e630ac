// The tiers that kernels/portable is compiled for, slowest first.
#include "kernels/variants.h"

namespace waste::kernels {

std::span<const PortableKernels> portable_kernels() {
#define WASTE_ROW(t) \
    { Tier::t, &t::kActivation, &t::kAttnRes, &t::kConv, &t::kKdaGate, &t::kMla, &t::kNorm, &t::kQuantize }
    static constexpr PortableKernels kAll[] = {
        WASTE_ROW(scalar),
#if defined(__x86_64__)
        WASTE_ROW(avx2),
        WASTE_ROW(avx512),
#elif defined(__aarch64__)
        WASTE_ROW(neon),
#endif
    };
#undef WASTE_ROW
    return kAll;
}

}  // namespace waste::kernels
