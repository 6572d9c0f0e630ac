// Vectors of the tier's own width, for the plain C++ of this folder: compilers turn loops into vector code
// when they please, a vector type always is. Results do not depend on the width: operations are lane by lane,
// and sums go in a fixed number of chains (sums.h). Internal linkage throughout, as tier files need.
#pragma once

#include <cstdint>
#include <utility>

// kVectorBytes, Floats and fma() of the tier. Loops of __builtin_fmaf are vectorized only sometimes.
// clang-format off
#define WASTE_QUOTE_EXPANDED(x) #x
#define WASTE_QUOTE(x) WASTE_QUOTE_EXPANDED(x)
#include WASTE_QUOTE(kernels/WASTE_TIER/vector.h)
// clang-format on

namespace waste::kernels {
namespace {

inline constexpr int kLanes = kVectorBytes / 4;

using Ints __attribute__((vector_size(kVectorBytes))) = int32_t;
using Bits __attribute__((vector_size(kVectorBytes))) = uint32_t;
using Doubles __attribute__((vector_size(kVectorBytes))) = double;

/// A vector at any address of a float.
using FloatsAnywhere __attribute__((vector_size(kVectorBytes), aligned(4), may_alias)) = float;

[[gnu::always_inline]] inline Floats load(const float* p) {
    return *reinterpret_cast<const FloatsAnywhere*>(p);
}
[[gnu::always_inline]] inline void store(float* p, Floats v) {
    *reinterpret_cast<FloatsAnywhere*>(p) = v;
}

/// x in every lane. Subtracting zero changes nothing, the sign of zero included, so compilers drop it.
inline Floats all(float x) {
    return x - Floats{};
}

/// A whole vector of a row.
struct Strip {
    static constexpr int64_t count = kLanes;  // NOLINT(readability-identifier-naming): as in PartStrip
    int64_t begin;
    Floats load(const float* row) const { return kernels::load(row + begin); }
    void store(float* row, Floats v) const { kernels::store(row + begin, v); }
};

/// The lanes left at a row's end: the others read zeros and are not written.
struct PartStrip {
    int64_t begin;
    int64_t count;
    Floats load(const float* row) const {
        float lane[kLanes] = {};
        for (int64_t i = 0; i < count; ++i) lane[i] = row[begin + i];
        return kernels::load(lane);
    }
    void store(float* row, Floats v) const {
        float lane[kLanes];
        kernels::store(lane, v);
        for (int64_t i = 0; i < count; ++i) row[begin + i] = lane[i];
    }
};

/// body(strip) for the columns [begin, n), vector by vector.
template <typename Body>
inline void for_strips(int64_t begin, int64_t n, const Body& body) {
    int64_t i = begin;
    for (; i + kLanes <= n; i += kLanes) body(Strip{i});
    if (i < n) body(PartStrip{i, n - i});
}

}  // namespace
}  // namespace waste::kernels
