// Normalizations of one vector.
//
// Numerics: squares are summed in f64 in 16 chains, element i in chain i % 16 in ascending order; then chain
//           j takes in chain j + 8, j + 4, j + 2, j + 1. The factor 1 / sqrt(…) (or scale / sqrt(…)) is
//           rounded to f32 once, and the rest is f32, from left to right. Binding, so every tier gives the
//           same bits. Nothing overflows; a factor that is subnormal (a root mean square above 2^126) costs a
//           few bits.
// Cost:     reads x twice, the second time from cache; 2 flop in f64 and 2 in f32 an element.
#pragma once

#include <cstdint>

namespace waste::kernels {

struct NormKernels {
    /// y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]. y may alias x.
    void (*rms_norm)(const float* x, const float* weight, float eps, int64_t n, float* y);

    /// y[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i] * sigmoid(gate[i]). y may alias x.
    void (*rms_norm_gated)(const float* x, const float* weight, const float* gate, float eps, int64_t n,
                           float* y);

    /// y[i] = x[i] / sqrt(sum(x^2) + 1e-6) * scale. The epsilon stands inside the root (fla l2norm); a zero
    /// vector stays zero. y may alias x.
    void (*l2_norm)(const float* x, float scale, int64_t n, float* y);
};

}  // namespace waste::kernels
