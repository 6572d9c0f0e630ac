#include "kernels/variants.h"

namespace waste::kernels {

std::span<const PortableKernels* const> portable_kernels() {
    static constexpr const PortableKernels* kAll[] = {
        &scalar::kPortable,
#if defined(__x86_64__)
        &avx2::kPortable,
        &avx512::kPortable,
#elif defined(__aarch64__)
        &neon::kPortable,
#endif
    };
    return kAll;
}

}  // namespace waste::kernels
