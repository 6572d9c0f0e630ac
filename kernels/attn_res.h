// Attention Residuals: the input of a sub-layer is a softmax mix of earlier block snapshots and the running
// sum.
//
//   cand    = snapshots + [prefix]                                     prefix last
//   score_i = sum_c cand_i[c] / sqrt(mean(cand_i^2) + eps) * mix_weight[c]
//   out     = sum_i softmax(score)_i * cand_i                          the raw candidates, not the normed
//   ones
//
// mix_weight = norm weight x proj weight, multiplied once at load. Source: the release's
// modeling_kimi_linear.py. `out` may not alias a candidate.
//
// Numerics: both sums over c in f64 in 16 chains as in norm.h; the scores, their softmax (sum in ascending i)
//           and the mix are f32, out = fma(softmax_i, cand_i, out) in ascending i from zero. Binding.
// Cost:     each candidate is read twice, the second time from L2: 4 flop in f64 and 2 in f32 an element.
#pragma once

#include <cstdint>

namespace waste::kernels {

inline constexpr int64_t kMaxAttnResCandidates = 64;

struct AttnResKernels {
    /// candidates: `count` pointers to [hidden_size], 1 <= count <= kMaxAttnResCandidates.
    void (*mix)(const float* const* candidates, int64_t count, const float* mix_weight, float eps,
                int64_t hidden_size, float* out);
};

}  // namespace waste::kernels
