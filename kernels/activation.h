// Pointwise non-linearities, f32. y may alias any input.
//
// Numerics: exp, sigmoid and tanh are our own (portable/math.h), so every tier on every machine gives the
//           same bits. Sigmoid is within 2.4 units in the last place (ulp) of the true value, tanh within
//           2.5; large negative arguments keep their relative precision down to subnormals. NaN and Inf
//           propagate.
// Cost:     bound by arithmetic: about 25 operations and a division an element for sigmoid, 60 and a division
//           for SiTU. add and add_scaled: 12 bytes an element.
// Range:    elements.
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
    /// gate/beta is gate * (1/beta), and the three quotients are multiplied out and divided once.
    /// linear_beta = 0 leaves the up branch unbounded (factor `up`); no released config asks for it.
    void (*situ_glu)(const float* gate, const float* up, float beta, float linear_beta, int64_t n, float* y);

    /// y[i] += x[i]
    void (*add)(const float* x, int64_t n, float* y);

    /// y[i] = fma(weight, x[i], y[i])
    void (*add_scaled)(const float* x, float weight, int64_t n, float* y);
};

}  // namespace waste::kernels
