#include "kernels/activation.h"

#include <cmath>

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {
namespace {

/// The exponent is never positive, so nothing overflows and small results keep their precision.
float sigmoid(float x) {
    if (x >= 0.0f) return 1.0f / (1.0f + std::exp(-x));
    const float e = std::exp(x);
    return e / (1.0f + e);
}

void sigmoid_all(const float* x, int64_t n, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = sigmoid(x[i]);
}

void sigmoid_gate(const float* x, const float* gate, int64_t n, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = x[i] * sigmoid(gate[i]);
}

void silu_glu(const float* gate, const float* up, int64_t n, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = gate[i] * sigmoid(gate[i]) * up[i];
}

void situ_glu(const float* gate, const float* up, float beta, float linear_beta, int64_t n, float* y) {
    for (int64_t i = 0; i < n; ++i) {
        const float bounded_gate = beta * std::tanh(gate[i] / beta) * sigmoid(gate[i]);
        const float bounded_up = linear_beta == 0.0f ? up[i] : linear_beta * std::tanh(up[i] / linear_beta);
        y[i] = bounded_gate * bounded_up;
    }
}

void add(const float* x, int64_t n, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void add_scaled(const float* x, float weight, int64_t n, float* y) {
    for (int64_t i = 0; i < n; ++i) y[i] = __builtin_fmaf(weight, x[i], y[i]);
}

/// log(1 + e^x); from 20 on it is x to the last bit of f32.
float softplus(float x) {
    return x > 20.0f ? x : std::log1p(std::exp(x));
}

void decay_bounded(const float* raw, const float* dt_bias, float a_log, float lower_bound, int64_t n,
                   float* decay) {
    const float a = std::exp(a_log);
    for (int64_t i = 0; i < n; ++i) decay[i] = std::exp(lower_bound * sigmoid(a * (raw[i] + dt_bias[i])));
}

void decay_softplus(const float* raw, const float* dt_bias, float a_log, int64_t n, float* decay) {
    const float a = std::exp(a_log);
    for (int64_t i = 0; i < n; ++i) decay[i] = std::exp(-a * softplus(raw[i] + dt_bias[i]));
}

}  // namespace

const ActivationKernels kActivation{sigmoid_all, sigmoid_gate, silu_glu, situ_glu, add, add_scaled};
const KdaGateKernels kKdaGate{decay_bounded, decay_softplus};

}  // namespace waste::kernels::WASTE_TIER
