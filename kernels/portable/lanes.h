// Vectors of the tier's own width, for the plain C++ of this folder: compilers turn loops into vector code
// when they please, a vector type always is. Results do not depend on the width: operations are lane by lane,
// and sums go in a fixed number of chains (sums.h). Internal linkage throughout, as tier files need.
#pragma once

#include <cstdint>
#include <utility>

namespace waste::kernels {

// Widest register of each tier. (The compilers' own macro for it, __BIGGEST_ALIGNMENT__, is 16 in Clang.)
namespace scalar {
constexpr int kVectorBytes = 16;
}
namespace avx2 {
constexpr int kVectorBytes = 32;
}
namespace avx512 {
constexpr int kVectorBytes = 64;
}
namespace neon {
constexpr int kVectorBytes = 16;
}

namespace {

constexpr int kVectorBytes = WASTE_TIER::kVectorBytes;
constexpr int kLanes = kVectorBytes / 4;

typedef float Floats __attribute__((vector_size(kVectorBytes)));
typedef int32_t Ints __attribute__((vector_size(kVectorBytes)));
typedef uint32_t Bits __attribute__((vector_size(kVectorBytes)));
typedef double Doubles __attribute__((vector_size(kVectorBytes)));
/// As many floats as Doubles has doubles.
typedef float HalfFloats __attribute__((vector_size(kVectorBytes / 2)));

/// A vector at any address of a float.
typedef float FloatsAnywhere __attribute__((vector_size(kVectorBytes), aligned(4), may_alias));
typedef float HalfAnywhere __attribute__((vector_size(kVectorBytes / 2), aligned(4), may_alias));

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

template <int... kLane>
[[gnu::always_inline]] inline Floats fma_lanes(Floats a, Floats b, Floats c,
                                               std::integer_sequence<int, kLane...>) {
    return Floats{__builtin_fmaf(a[kLane], b[kLane], c[kLane])...};
}

/// Written per lane because vector types have no fma; both compilers make one instruction of it.
[[gnu::always_inline]] inline Floats fma(Floats a, Floats b, Floats c) {
    return fma_lanes(a, b, c, std::make_integer_sequence<int, kLanes>{});
}

/// A whole vector of a row.
struct Strip {
    static constexpr int64_t count = kLanes;
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
