#include "kernels/activation.h"

#include <cmath>

namespace waste::kernels {

float sigmoid(float x) {
    // The exponent is never positive, so nothing overflows and small results keep their precision.
    if (x >= 0.0f) return 1.0f / (1.0f + std::exp(-x));
    const float e = std::exp(x);
    return e / (1.0f + e);
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

}  // namespace waste::kernels
