// Kimi Delta Attention, one head.
//
//   S' = diag(decay) S                              row i (key index) times decay[i]
//   u  = beta (v - S'^T k)                          the delta against the decayed state
//   S  = S' + k u^T
//   o  = S^T q = S'^T q + (k.q) u                   so the output needs no second read of the state
//
// Source: Kimi Linear, arXiv 2510.26692, equation 1 with the fine-grained decay; fla ops/kda/naive.py
// (naive_recurrent_kda), read 2026-11.
//
// kda_run() takes any number of sequences of any lengths, each with a state of its own. Tokens whose absolute
// positions fill a chunk [64 n, 64 n + 64) are computed by the chunk kernel, all others one by one by the
// step kernel; so results depend on where calls begin and end only through which chunks they fill, and the
// two kernels agree within rounding, not bit for bit. The switch never depends on the shape.
//
// Measured, K = V = 128, one Cascade Lake core (docs/measurements/2026-11-29-kda-chunk.md), us a token:
//             512 tokens by chunks   steps, state in cache   steps, states in memory   3 K V multiply-adds
//   avx512            1.03                    2.7                    8.2                    0.65
//   avx2              1.70                    3.2                    9.9                    1.16
// A chunk takes as long as about 25 steps (avx2: 35) on a state in cache.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace waste::kernels {

/// Tokens of an aligned chunk, and of the blocks in it that the state steps through at once.
inline constexpr int64_t kKdaChunk = 64;
inline constexpr int64_t kKdaBlock = 8;

/// One token. Shapes: q, k, decay [K]; v [V]. k is L2-normalized, q is L2-normalized and scaled by K^-0.5,
/// decay in [0, 1], beta in (0, 1).
struct KdaHead {
    const float* q;
    const float* k;
    const float* v;
    const float* decay;
    float beta;
    int64_t key_dim;
    int64_t value_dim;
};

/// state S [K][V], row-major by key, in and out; out [V] may alias v, nothing else may alias.
/// Numerics: f32. Per value column: s' = decay[i] * s; pk = fma(k[i], s', pk); pq = fma(q[i], s', pq) in
///           ascending i from zero; kq = fma(k[i], q[i], kq) likewise; u = beta * (v - pk);
///           s = fma(k[i], u, s'); o = fma(kq, u, pq). Binding, so every tier gives the same bits.
/// Cost:     6 K V flop; the state is read twice (the second time from cache) and written once: 8 K V bytes
///           of memory traffic, which is the floor.
using KdaStep = void (*)(const KdaHead& head, float* state, float* out);

struct KdaStepVariant {
    Tier tier;
    KdaStep run;
};
std::span<const KdaStepVariant> kda_step_variants();

/// The tokens of one chunk. Shapes: q, k [kKdaChunk][key_stride], decay [..][decay_stride], K floats of each
/// row; v, out [..][value_stride], [..][out_stride], V floats of each; beta [kKdaChunk]. K and V are
/// multiples of 16: kda_run() pads with zeros.
struct KdaChunkHead {
    const float* q;
    const float* k;
    int64_t key_stride;
    const float* decay;
    int64_t decay_stride;
    const float* v;
    int64_t value_stride;
    const float* beta;
    int64_t key_dim;
    int64_t value_dim;
    float* out;
    int64_t out_stride;
};

/// state S [K][V] in and out; scratch [kda_chunk_scratch_floats(K)]; out may alias v at equal strides.
/// Formula:  in blocks of kKdaBlock tokens, d the decays, i and j tokens of the block,
///             P_i = prod_{t <= i} d_t       R_j = prod_{t > j} d_t       D_ij = prod_{j < t <= i} d_t
///             u_i = beta_i (v_i - (k_i P_i)^T S - sum_{j < i} (k_i . (k_j D_ij)) u_j)
///             o_i = (q_i P_i)^T S + sum_{j <= i} (q_i . (k_j D_ij)) u_j
///             S   = diag(P_last) S + sum_j (k_j R_j) u_j^T
///           Decays are only ever multiplied with one another, so nothing overflows, and what underflows to 0
///           has decayed to 0.
/// Numerics: f32. Products of decays: P ascending, R descending, k_j D_ij from k_j on ascending in t. Dot
///           products k_i . (k_j D_ij): fma in 16 interleaved chains folded pairwise, i with i + 8 first.
///           Sums over channels, then over j: one chain of fma each, ascending, from zero (from P_last S for
///           the state). Binding.
/// Cost:     3 K V + kKdaBlock (K + V) multiply-adds a token, and fma is the floor; the state is read and
///           written once a chunk.
using KdaChunk = void (*)(const KdaChunkHead& head, float* state, float* scratch);

struct KdaChunkVariant {
    Tier tier;
    KdaChunk run;
};
std::span<const KdaChunkVariant> kda_chunk_variants();
int64_t kda_chunk_scratch_floats(int64_t key_dim);

struct KdaGateKernels {
    /// Decay of one head and token: decay[i] = exp(g[i]), z[i] = raw[i] + dt_bias[i], a = exp(a_log).
    ///   bounded (K3):               g = lower_bound * sigmoid(a z)
    ///   softplus (Kimi-Linear):     g = -a * softplus(z)
    /// g <= 0 always, so decay never overflows; it may underflow to 0 in the softplus form.
    void (*bounded)(const float* raw, const float* dt_bias, float a_log, float lower_bound, int64_t n,
                    float* decay);
    void (*softplus)(const float* raw, const float* dt_bias, float a_log, int64_t n, float* decay);
};

/// How the gate comes: as decay already, or raw, to be activated by one of the two formulas.
enum class KdaGate : uint8_t { decay, bounded, softplus };

struct KdaSequence {
    int64_t first_token;  ///< row of q, k, v, gate, beta and out
    int64_t tokens;       ///< 0 is allowed
    int64_t position;     ///< of the first of them in its sequence
    int64_t slot;         ///< whose state it is
};

/// One head of a batch. All rows are [tokens][stride]; pointers stand at the head's first column.
struct KdaCall {
    int64_t key_dim;
    int64_t value_dim;
    const float* q;
    const float* k;
    const float* v;
    const float* gate;
    int64_t stride;  ///< of q, k, v and gate
    const float* beta;
    int64_t beta_stride;
    bool beta_is_logit;  ///< sigmoid is applied
    KdaGate gate_form;
    const float* dt_bias;  ///< [K]; with a_log for a raw gate
    float a_log;
    float lower_bound;  ///< for KdaGate::bounded
    float* states;      ///< [slots][slot_stride]: this head's state is the first K V floats of its slot
    int64_t slot_stride;
    std::span<const KdaSequence> sequences;
    float* out;
    int64_t out_stride;
};

struct KernelSet;

/// Scratch of kda_run in floats.
int64_t kda_scratch_floats(int64_t key_dim, int64_t value_dim);

/// Range: heads are independent; callers split over heads.
void kda_run(const KernelSet& kernels, const KdaCall& call, float* scratch);

}  // namespace waste::kernels
