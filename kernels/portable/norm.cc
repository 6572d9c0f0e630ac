#include "kernels/norm.h"

#include <cmath>

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {
namespace {

double sum_of_squares(const float* x, int64_t n) {
    double sum = 0.0;
    for (int64_t i = 0; i < n; ++i) sum += double{x[i]} * double{x[i]};
    return sum;
}

/// The factor stays f64: for inputs near the largest f32 its f32 value would be subnormal.
double inverse_rms(const float* x, float eps, int64_t n) {
    return 1.0 / std::sqrt(sum_of_squares(x, n) / static_cast<double>(n) + double{eps});
}

float sigmoid(float x) {
    if (x >= 0.0f) return 1.0f / (1.0f + std::exp(-x));
    const float e = std::exp(x);
    return e / (1.0f + e);
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
    const double factor = inverse_rms(x, eps, n);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor) * weight[i];
}

void rms_norm_gated(const float* x, const float* weight, const float* gate, float eps, int64_t n, float* y) {
    const double factor = inverse_rms(x, eps, n);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor) * weight[i] * sigmoid(gate[i]);
}

void l2_norm(const float* x, float scale, int64_t n, float* y) {
    const double factor = double{scale} / std::sqrt(sum_of_squares(x, n) + 1e-6);
    for (int64_t i = 0; i < n; ++i) y[i] = static_cast<float>(x[i] * factor);
}

}  // namespace

const NormKernels kNorm{rms_norm, rms_norm_gated, l2_norm};

}  // namespace waste::kernels::WASTE_TIER
