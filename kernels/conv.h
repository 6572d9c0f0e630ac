// Depthwise causal short convolution, one token, followed by SiLU.
//
//   y[c] = silu( sum_{j<taps} w[c][j] * x_{t-taps+1+j}[c] )      the last tap multiplies the newest input
//
// The inputs before this token live in a ring of taps - 1 rows; row `oldest` is the oldest and is replaced by
// x, so that nothing moves. Inputs before the sequence are zero. No bias.
#pragma once

#include <cstdint>

namespace waste::kernels {

/// x, y [channels]; weight [channels][taps]; ring [taps - 1][channels]. The caller advances `oldest` by one
/// modulo taps - 1 after the call. Range: channels [begin, end). y may alias x.
void short_conv_step(const float* x, const float* weight, int64_t taps, int64_t oldest, int64_t channels,
                     int64_t begin, int64_t end, float* ring, float* y);

}  // namespace waste::kernels
