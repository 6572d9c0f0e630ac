// Multi-head latent attention, absorbed form, one query position and one head.
//
//   score[s] = (q_latent . latent[s] + q_rope . rope[s]) * scale       s = 0 .. positions-1
//   out      = sum_s softmax(score)[s] * latent[s]
//
// q_latent is W_k^T q_nope, so keys are never expanded; the caller multiplies `out` by the head's value
// matrix. Nothing is rotated: the "rope" channels are plain key channels shared by all heads (mla_use_nope).
// Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.3; the release's modeling_kimi_linear.py.
//
// Shapes:   q_latent, out [rank]; q_rope [rope_dim]; latent [positions][rank]; rope [positions][rope_dim].
// Numerics: f32 dot products in 16 interleaved chains folded pairwise. Positions go in blocks of kMlaBlock:
//           each has its own maximum, sum and weighted latent sum, merged in ascending order, so the result
//           does not depend on how blocks are spread over threads.
// Scratch:  scratch [kMlaBlock + rank] f32.
// Cost:     positions * (2 rank + rope_dim) multiply-adds.
#pragma once

#include <cstdint>

namespace waste::kernels {

inline constexpr int64_t kMlaBlock = 256;

struct MlaQuery {
    const float* q_latent;
    const float* q_rope;
    const float* latent;
    const float* rope;
    int64_t positions;
    int64_t rank;
    int64_t rope_dim;
    float scale;
};

void mla_attend(const MlaQuery& query, float* scratch, float* out);

}  // namespace waste::kernels
