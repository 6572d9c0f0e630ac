#include "kernels/norm.h"

#include "kernels/portable/math.h"
#include "kernels/portable/sums.h"
#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {
namespace {

double sum_of_squares(const float* x, int64_t n) {
    Wide squares;
    for_wide(n, [&](auto at) {
        const Wide value = at(x);
        squares.add_product(value, value);
    });
    return squares.fold();
}

float inverse_rms(const float* x, float eps, int64_t n) {
    const double mean = sum_of_squares(x, n) / static_cast<double>(n);
    return static_cast<float>(1.0 / __builtin_sqrt(mean + double{eps}));
}

void rms_norm(const float* x, const float* weight, float eps, int64_t n, float* y) {
    const float factor = inverse_rms(x, eps, n);
    for_strips(0, n, [=](auto strip) { strip.store(y, strip.load(x) * factor * strip.load(weight)); });
}

void rms_norm_gated(const float* x, const float* weight, const float* gate, float eps, int64_t n, float* y) {
    const float factor = inverse_rms(x, eps, n);
    for_strips(0, n, [=](auto strip) {
        const Floats normed = strip.load(x) * factor * strip.load(weight);
        strip.store(y, normed * sigmoid(strip.load(gate)).value());
    });
}

void l2_norm(const float* x, float scale, int64_t n, float* y) {
    const double root = __builtin_sqrt(sum_of_squares(x, n) + 1e-6);
    const float factor = static_cast<float>(double{scale} / root);
    for_strips(0, n, [=](auto strip) { strip.store(y, strip.load(x) * factor); });
}

}  // namespace

const NormKernels kNorm{rms_norm, rms_norm_gated, l2_norm};

}  // namespace waste::kernels::WASTE_TIER
