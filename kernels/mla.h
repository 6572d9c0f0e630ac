// Multi-head latent attention, absorbed form: some heads of one query position over cached latents.
//
//   score[h][s] = (q_latent[h] . latent[s] + q_rope[h] . rope[s]) * scale       s = 0 .. positions - 1
//   out[h]      = sum_s softmax(score[h])[s] * latent[s]
//
// q_latent is W_k^T q_nope, so keys are never expanded; the caller multiplies `out` by the head's value
// matrix. Nothing is rotated: the "rope" channels are plain key channels shared by all heads (mla_use_nope).
// Source: DeepSeek-V2, arXiv 2405.04434, section 2.1.3; the release's modeling_kimi_linear.py.
//
// Positions go in spans of kMlaSpan. A span's softmax runs over blocks of kMlaBlock positions, each with its
// own maximum, sum and weighted latent sum, merged in ascending order; spans are merged in ascending order
// too. Spans may run on different threads, and the result does not depend on how they were spread.
//
// Shapes:   q_latent [heads][latent_stride], q_rope [heads][rope_stride]; latent [positions][rank];
//           rope [positions][rope_dim].
// Numerics: a score is one dot product in 16 chains over latent, then rope (each padded with zeros to a
//           multiple of 16): element i goes to chain i % 16 by fma in ascending order; then chain j takes in
//           chain j + 8, j + 4, j + 2, j + 1. A block's maximum and sum of weights go in 16 chains over its
//           positions likewise; its weighted sum is fma in ascending position from zero. Binding, so every
//           tier gives the same bits, and a head's result does not depend on which heads share the call.
// Cost:     heads * positions * (2 rank + rope_dim) multiply-adds; latents come from memory once for all
//           heads.
#pragma once

#include <cstdint>

namespace waste::kernels {

inline constexpr int64_t kMlaBlock = 256;
inline constexpr int64_t kMlaSpan = 4 * kMlaBlock;
/// Most heads of one call.
inline constexpr int64_t kMlaHeads = 8;

struct MlaQuery {
    const float* q_latent;
    int64_t latent_stride;
    const float* q_rope;
    int64_t rope_stride;
    int64_t heads;  ///< 1 .. kMlaHeads
    const float* latent;
    const float* rope;
    int64_t rank;
    int64_t rope_dim;
    float scale;
};

/// A softmax over some positions, before the division: weights are relative to exp(maximum).
struct MlaPartial {
    float* maximum;   ///< [heads]
    float* sum;       ///< [heads]
    float* weighted;  ///< [heads][rank]
};

inline constexpr int64_t mla_scratch_floats(int64_t rank) {
    return kMlaHeads * (kMlaBlock + rank);
}

struct MlaKernels {
    /// Positions [begin, end), at most a span, begin a multiple of kMlaSpan. scratch
    /// [mla_scratch_floats(rank)].
    void (*attend)(const MlaQuery& query, int64_t begin, int64_t end, float* scratch, const MlaPartial& out);
    /// into = into merged with the later `next`.
    void (*merge)(int64_t heads, int64_t rank, const MlaPartial& next, const MlaPartial& into);
    /// out [heads][out_stride] = weighted / sum.
    void (*finish)(int64_t heads, int64_t rank, const MlaPartial& partial, float* out, int64_t out_stride);
};

}  // namespace waste::kernels
