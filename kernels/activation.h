// Pointwise non-linearities, f32. y may alias any input.
#pragma once

#include <cstdint>

namespace waste::kernels {

struct ActivationKernels {
    /// y[i] = 1 / (1 + exp(-x[i]))
    void (*sigmoid)(const float* x, int64_t n, float* y);

    /// y[i] = x[i] * sigmoid(gate[i])
    void (*sigmoid_gate)(const float* x, const float* gate, int64_t n, float* y);

    /// SwiGLU: y[i] = silu(gate[i]) * up[i]
    void (*silu_glu)(const float* gate, const float* up, int64_t n, float* y);

    /// SiTU: y[i] = beta tanh(gate/beta) sigmoid(gate) * linear_beta tanh(up/linear_beta)
    /// linear_beta = 0 leaves the up branch unbounded (factor `up`); no released config asks for it.
    void (*situ_glu)(const float* gate, const float* up, float beta, float linear_beta, int64_t n, float* y);

    /// y[i] += x[i]
    void (*add)(const float* x, int64_t n, float* y);

    /// y[i] = fma(weight, x[i], y[i])
    void (*add_scaled)(const float* x, float weight, int64_t n, float* y);
};

}  // namespace waste::kernels
