#include "kernels/conv.h"

#include "kernels/activation.h"

namespace waste::kernels {

void short_conv_step(const float* x, const float* weight, int64_t taps, int64_t oldest, int64_t channels,
                     int64_t begin, int64_t end, float* ring, float* y) {
    const int64_t rows = taps - 1;
    for (int64_t c = begin; c < end; ++c) {
        const float* w = weight + c * taps;
        const float newest = x[c];
        float sum = 0.0f;
        for (int64_t j = 0; j < rows; ++j) {
            const int64_t row = oldest + j < rows ? oldest + j : oldest + j - rows;
            sum += w[j] * ring[row * channels + c];
        }
        sum += w[rows] * newest;
        if (rows > 0) ring[oldest * channels + c] = newest;
        y[c] = sum * sigmoid(sum);
    }
}

}  // namespace waste::kernels
