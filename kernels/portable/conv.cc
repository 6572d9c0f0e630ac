#include "kernels/conv.h"

#include <cmath>

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {
namespace {

float sigmoid(float x) {
    if (x >= 0.0f) return 1.0f / (1.0f + std::exp(-x));
    const float e = std::exp(x);
    return e / (1.0f + e);
}

void short_conv(const ConvCall& call, const float* x, int64_t x_stride, float* y, int64_t y_stride) {
    const int64_t rows = call.taps - 1;
    for (int64_t t = 0; t < call.tokens; ++t) {
        const int64_t oldest = (call.position + t) % rows;
        for (int64_t c = 0; c < call.channels; ++c) {
            const float* w = call.weight + c * call.taps;
            const float newest = x[t * x_stride + c];
            float sum = 0.0f;
            for (int64_t j = 0; j < rows; ++j) {
                const int64_t row = oldest + j < rows ? oldest + j : oldest + j - rows;
                sum += w[j] * call.ring[row * call.ring_stride + c];
            }
            sum += w[rows] * newest;
            call.ring[oldest * call.ring_stride + c] = newest;
            y[t * y_stride + c] = sum * sigmoid(sum);
        }
    }
}

}  // namespace

const ConvKernels kConv{short_conv};

}  // namespace waste::kernels::WASTE_TIER
