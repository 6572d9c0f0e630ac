// Normalizations of one vector. Statistics are accumulated in f64, in ascending order.
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
