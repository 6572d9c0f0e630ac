// Sums in kChains chains: element i goes to chain i % kChains; at the end chain j takes in chain j + 8, then
// j + 4, j + 2, j + 1. So they come out the same for vectors of any width.
#pragma once

#include "kernels/portable/lanes.h"

namespace waste::kernels {
namespace {

inline constexpr int kChains = 16;
inline constexpr int kChainVectors = kChains / kLanes;

template <typename V>
struct AddOp {
    static V of(V a, V b) { return a + b; }
};

/// Of two vectors made of groups of `kGroup` lanes: every group folded onto its first half, a's groups first.
template <int kGroup, template <typename> class Op, typename V, int... kLane>
inline V fold_groups(V a, V b, std::integer_sequence<int, kLane...>) {
    constexpr int kHalf = kGroup / 2;
    const V low = __builtin_shufflevector(a, b, (kLane / kHalf * kGroup + kLane % kHalf)...);
    const V high = __builtin_shufflevector(a, b, (kLane / kHalf * kGroup + kLane % kHalf + kHalf)...);
    return Op<V>::of(low, high);
}

/// Folds each of four vectors to one value; they come out in the first four lanes.
template <template <typename> class Op, typename V>
inline V fold4(V a, V b, V c, V d) {
    constexpr auto kAll = std::make_integer_sequence<int, kLanes>{};
    const V ab = fold_groups<kLanes, Op>(a, b, kAll);
    const V cd = fold_groups<kLanes, Op>(c, d, kAll);
    V v = fold_groups<kLanes / 2, Op>(ab, cd, kAll);
    if constexpr (kLanes == 16) v = fold_groups<4, Op>(v, v, kAll);
    if constexpr (kLanes >= 8) v = fold_groups<2, Op>(v, v, kAll);
    return v;
}

/// kChains consecutive floats in f64.
struct Wide {
    static constexpr int kLanesOfOne = kLanes / 2;
    static constexpr int kVectors = kChains / kLanesOfOne;
    Doubles part[kVectors] = {};

    static Wide load(const float* p) { return load(p, std::make_integer_sequence<int, kLanesOfOne>{}); }
    /// Per lane: __builtin_convertvector of 16 floats is six instructions in GCC 12.
    template <int... kLane>
    static Wide load(const float* p, std::integer_sequence<int, kLane...>) {
        Wide wide;
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i, p += kLanesOfOne) wide.part[i] = Doubles{double{p[kLane]}...};
        return wide;
    }
    /// += a * b. The product of two f32 is exact in f64, so fused or not is the same.
    void add_product(const Wide& a, const Wide& b) {
#pragma GCC unroll 8
        for (int i = 0; i < kVectors; ++i) part[i] += a.part[i] * b.part[i];
    }
    double fold() const {
        double chain[kChains];
        __builtin_memcpy(chain, part, sizeof chain);
#pragma GCC unroll 4
        for (int width = kChains / 2; width > 0; width /= 2) {
#pragma GCC unroll 8
            for (int j = 0; j < width; ++j) chain[j] += chain[j + width];
        }
        return chain[0];
    }
};

/// body(at) with `at(row)` = kChains elements of a row in f64, zeros past its end.
template <typename Body>
inline void for_wide(int64_t n, const Body& body) {
    int64_t i = 0;
    for (; i + kChains <= n; i += kChains) {
        body([i](const float* row) { return Wide::load(row + i); });
    }
    if (i == n) return;
    body([i, n](const float* row) {
        float padded[kChains] = {};
        for (int64_t j = i; j < n; ++j) padded[j - i] = row[j];
        return Wide::load(padded);
    });
}

}  // namespace
}  // namespace waste::kernels
