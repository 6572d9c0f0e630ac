#include "kernels/matmul.h"

#include <algorithm>
#include <array>

#include "kernels/variants.h"

namespace waste::kernels {
namespace {

/// The tiers' rows as one table, slowest tier first.
template <typename Variant, size_t... Rows>
std::array<Variant, (Rows + ...)> joined(const Variant (&... tables)[Rows]) {
    std::array<Variant, (Rows + ...)> all;
    auto next = all.begin();
    ((next = std::copy(std::begin(tables), std::end(tables), next)), ...);
    return all;
}

}  // namespace

std::span<const MatmulF32Variant> matmul_f32_variants() {
#if defined(__x86_64__)
    static const auto kAll = joined(scalar::kMatmulF32, avx2::kMatmulF32, avx512::kMatmulF32);
#elif defined(__aarch64__)
    static const auto kAll = joined(scalar::kMatmulF32, neon::kMatmulF32);
#else
    static const auto kAll = joined(scalar::kMatmulF32);
#endif
    return kAll;
}

std::span<const MatmulInt8Variant> matmul_int8_variants() {
#if defined(__x86_64__)
    static const auto kAll =
        joined(scalar::kMatmulInt8, avx2::kMatmulInt8, avxvnni::kMatmulInt8, avx512::kMatmulInt8);
#elif defined(__aarch64__)
    static const auto kAll = joined(scalar::kMatmulInt8, neon::kMatmulInt8, i8mm::kMatmulInt8);
#else
    static const auto kAll = joined(scalar::kMatmulInt8);
#endif
    return kAll;
}

}  // namespace waste::kernels
