#include "kernels/matvec.h"

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

std::span<const MatvecF32Variant> matvec_f32_variants() {
#if defined(__x86_64__)
    static const auto kAll = joined(scalar::kMatvecF32, avx2::kMatvecF32, avx512::kMatvecF32);
#elif defined(__aarch64__)
    static const auto kAll = joined(scalar::kMatvecF32, neon::kMatvecF32);
#else
    static const auto kAll = joined(scalar::kMatvecF32);
#endif
    return kAll;
}

std::span<const MatvecInt8Variant> matvec_int8_variants() {
#if defined(__x86_64__)
    static const auto kAll = joined(scalar::kMatvecInt8, avx2::kMatvecInt8, avx512::kMatvecInt8);
#elif defined(__aarch64__)
    static const auto kAll = joined(scalar::kMatvecInt8, neon::kMatvecInt8);
#else
    static const auto kAll = joined(scalar::kMatvecInt8);
#endif
    return kAll;
}

}  // namespace waste::kernels
