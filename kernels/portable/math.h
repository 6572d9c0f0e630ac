// exp, sigmoid, tanh and softplus in f32, of our own because a library's differ from machine to machine.
// Branch-free, in a fixed order. Largest errors in units in the last place, found by math_test over all
// floats: see the functions.
#pragma once

#include "kernels/portable/lanes.h"

namespace waste::kernels {
namespace {

inline constexpr uint32_t kSignBit = 0x80000000u;

inline Floats negative_magnitude(Floats x) {
    return (Floats)((Bits)x | kSignBit);
}

/// The limits leave NaN alone.
inline Floats at_least(float limit, Floats x) {
    return x < limit ? all(limit) : x;
}
inline Floats at_most(float limit, Floats x) {
    return x > limit ? all(limit) : x;
}

/// x = n ln 2 + r with whole n and |r| <= ln 2 / 2 (a little more by rounding).
struct Reduced {
    Ints n;
    Floats expm1;  ///< exp(r) - 1
};

/// |x| < 2^22 ln 2. exp(r) - 1 = r + r^2 q(r); q is of the least degree whose error is below that of the
/// roundings, and evaluated in pairs to shorten the chain of latencies.
[[gnu::always_inline]] inline Reduced reduce(Floats x) {
    constexpr float kShift = 0x1.8p23f;  // pushes the fraction out of the significand
    const Floats shifted = fma(x, all(0x1.715476p+0f), all(kShift));
    const Floats n = shifted - kShift;
    const Floats r = fma(n, all(0x1.05c61p-29f), fma(n, all(-0x1.62e43p-1f), x));
    const Floats r2 = r * r;
    const Floats low = fma(all(0x1.555492p-3f), r, all(0x1.fffffcp-2f));
    const Floats high = fma(all(0x1.6a4744p-10f), r2, fma(all(0x1.1239a2p-7f), r, all(0x1.5558b6p-5f)));
    return {(Ints)((Bits)shifted - 0x4b400000u), fma(fma(high, r2, low), r2, r)};
}

/// 2^n for -126 <= n <= 127; anything else is some number.
inline Floats power_of_two(Ints n) {
    return (Floats)(((Bits)n + 127u) << 23);
}

/// exp(x) for x <= 0 (or NaN), within 1 ulp. Underflows gradually: the power of two is applied in two
/// factors, of which only the last rounds.
[[gnu::always_inline]] inline Floats exp_nonpositive(Floats x) {
    const Reduced reduced = reduce(at_least(-104.0f, x));
    return (reduced.expm1 + 1.0f) * power_of_two(reduced.n + 64) * 0x1p-64f;
}

/// exp(x) for one x, within 1 ulp.
inline float exp1(float x) {
    const Reduced reduced = reduce(at_most(89.0f, at_least(-104.0f, all(x))));
    const Ints half = reduced.n >> 1;
    const Floats significand = reduced.expm1 + 1.0f;
    return (significand * power_of_two(half) * power_of_two(reduced.n - half))[0];
}

/// A quotient not yet divided, so that a product of several needs one division.
struct Fraction {
    Floats numerator;
    Floats denominator;
    Floats value() const { return numerator / denominator; }
};

/// 1 / (1 + exp(-x)): the exponent is never positive, so nothing overflows and small results keep their
/// precision.
[[gnu::always_inline]] inline Fraction sigmoid(Floats x) {
    const Floats e = exp_nonpositive(negative_magnitude(x));
    return {x >= 0.0f ? all(1.0f) : e, e + 1.0f};
}

/// -t / (2 + t), t = exp(-2|x|) - 1, with the sign of x. From 10 on it is 1.
[[gnu::always_inline]] inline Fraction tanh(Floats x) {
    const Reduced reduced = reduce(at_least(-20.0f, negative_magnitude(x) * 2.0f));
    const Floats power = power_of_two(reduced.n);
    const Floats t = fma(reduced.expm1, power, power - 1.0f);
    return {(Floats)(((Bits)t & ~kSignBit) | ((Bits)x & kSignBit)), t + 2.0f};
}

/// log(1 + exp(x)) = max(x, 0) + log1p(e), e = exp(-|x|); log1p(e) = 2 atanh(s), s = e / (2 + e).
[[gnu::always_inline]] inline Floats softplus(Floats x) {
    const Floats e = exp_nonpositive(negative_magnitude(x));
    const Floats s = e / (e + 2.0f);
    const Floats z = s * s;
    Floats p = all(0x1.1eff94p-2f);
    p = fma(p, z, all(0x1.1eb486p-2f));
    p = fma(p, z, all(0x1.99d296p-2f));
    p = fma(p, z, all(0x1.5555p-1f));
    const Floats log1p = fma(p * z, s, s + s);
    return (x < 0.0f ? Floats{} : x) + log1p;
}

}  // namespace
}  // namespace waste::kernels
