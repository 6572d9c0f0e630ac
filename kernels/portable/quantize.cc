#include "kernels/quantize.h"

#include "kernels/portable/sums.h"
#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {
namespace {

constexpr int kGroupVectors = kGroupCols / kLanes;

/// 127 over anything less may overflow.
constexpr float kLeastMagnitude = 0x1p-120f;

/// One value for each of a block's four groups.
using GroupFloats __attribute__((vector_size(16))) = float;
using GroupInts __attribute__((vector_size(16))) = int32_t;
using Codes __attribute__((vector_size(kLanes))) = int8_t;
using Bytes __attribute__((vector_size(kVectorBytes))) = int8_t;

template <typename V>
struct MaxOp {
    static V of(V a, V b) { return a > b ? a : b; }
};

/// As integers, magnitudes order like floats, and NaN comes out on top.
Ints largest_magnitude(const float* x) {
    Ints largest = {};
#pragma GCC unroll 8
    for (int i = 0; i < kGroupVectors; ++i) {
        largest = MaxOp<Ints>::of(largest, (Ints)load(x + i * kLanes) & 0x7fffffff);
    }
    return largest;
}

template <int... kByte>
Bytes low_bytes(Ints code, std::integer_sequence<int, kByte...>) {
    return __builtin_shufflevector((Bytes)code, (Bytes)code, (kByte % kLanes * 4)...);
}

/// AVX-512 has an instruction for it; elsewhere GCC 12 would convert lane by lane.
void store_codes(int8_t* codes, Ints code) {
    if constexpr (kLanes == 16) {
        const Codes narrow = __builtin_convertvector(code, Codes);
        __builtin_memcpy(codes, &narrow, kLanes);
    } else {
        const Bytes narrow = low_bytes(code, std::make_integer_sequence<int, kVectorBytes>{});
        __builtin_memcpy(codes, &narrow, kLanes);
    }
}

/// Codes of a group; returns vectors that add up to their sum. x * inverse is rounded to an integer, ties to
/// even, by pushing its fraction out of the significand. keep = 0 makes all codes zero.
Ints encode(const float* x, float inverse, int32_t keep, int8_t* codes) {
    constexpr float kShift = 0x1.8p23f;
    Ints sum = {};
#pragma GCC unroll 8
    for (int i = 0; i < kGroupVectors; ++i) {
        const Ints shifted = (Ints)(load(x + i * kLanes) * inverse + kShift) - 0x4b400000;
        const Ints code = shifted & keep;
        store_codes(codes + i * kLanes, code);
        sum += code;
    }
    return sum;
}

void quantize_block(const float* x, int8_t* codes, float* scales, int32_t* sums) {
    const Ints largest =
        fold4<MaxOp>(largest_magnitude(x), largest_magnitude(x + kGroupCols),
                     largest_magnitude(x + 2 * kGroupCols), largest_magnitude(x + 3 * kGroupCols));
    GroupInts bits;
    __builtin_memcpy(&bits, &largest, sizeof bits);
    const GroupFloats magnitude = (GroupFloats)bits;
    const GroupInts keep = (magnitude >= kLeastMagnitude) & (bits < 0x7f800000);
    const GroupFloats inverse = (GroupFloats)((GroupInts)(127.0f / magnitude) & keep);
    // Infinity and NaN less themselves are NaN, numbers are zero.
    const GroupFloats damage = magnitude - magnitude;  // NOLINT(misc-redundant-expression)
    const GroupFloats scale = (GroupFloats)((GroupInts)(magnitude / 127.0f) & keep) + damage;
    __builtin_memcpy(scales, &scale, sizeof scale);

    Ints sum[kBlockGroups];
#pragma GCC unroll 4
    for (int g = 0; g < kBlockGroups; ++g) {
        sum[g] = encode(x + g * kGroupCols, inverse[g], keep[g], codes + g * kGroupCols);
    }
    const Ints total = fold4<AddOp>(sum[0], sum[1], sum[2], sum[3]);
    __builtin_memcpy(sums, &total, kBlockGroups * sizeof *sums);
}

void quantize_int8(const float* x, int64_t cols, int64_t stride, int8_t* codes, float* scales,
                   int32_t* sums) {
    int64_t begin = 0;
    const auto out = [&](const float* from) {
        quantize_block(from, codes, scales, sums);
        codes += stride * kBlockCols;
        scales += stride * kBlockGroups;
        sums += stride * kBlockGroups;
    };
    for (; begin + kBlockCols <= cols; begin += kBlockCols) out(x + begin);
    if (begin == cols) return;
    float padded[kBlockCols] = {};
    for (int64_t i = begin; i < cols; ++i) padded[i - begin] = x[i];
    out(padded);
}

}  // namespace

const QuantizeKernels kQuantize{quantize_int8};

}  // namespace waste::kernels::WASTE_TIER
