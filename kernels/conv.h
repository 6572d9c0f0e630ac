// Depthwise causal short convolution followed by SiLU, any number of tokens of one sequence.
//
//   y[t][c] = silu( sum_{j<taps} w[c][j] * x[t-taps+1+j][c] )      the last tap multiplies the newest input
//
// Numerics: sum = fma(w, x, sum) in ascending j from zero; silu(s) = s * sigmoid(s) (activation.h). Binding.
// Cost:     taps + 25 operations and a division a channel and token, weights read once a call. Four taps, as
//           released, are the fast case.
// Range:    channels.
//
// The inputs before the first token live in a ring of taps - 1 rows, row position % (taps - 1) being the
// oldest, which each token's input replaces, so that nothing moves. Inputs before the sequence are zero. No
// bias.
#pragma once

#include <cstdint>

namespace waste::kernels {

struct ConvCall {
    const float* weight;  ///< [channels][taps]
    float* ring;          ///< [taps - 1][ring_stride], in and out
    int64_t ring_stride;
    int64_t taps;      ///< at least 2
    int64_t channels;  ///< weight and ring begin at the first of these
    int64_t position;  ///< of the first token, from 0
    int64_t tokens;
};

struct ConvKernels {
    /// x [tokens][x_stride], y [tokens][y_stride], of which the first `channels` are read and written. y may
    /// alias x with the same stride.
    void (*short_conv)(const ConvCall& call, const float* x, int64_t x_stride, float* y, int64_t y_stride);
};

}  // namespace waste::kernels
