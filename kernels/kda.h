// Kimi Delta Attention, recurrent form, one head and one token.
//
//   S' = diag(decay) S                              row i (key index) times decay[i]
//   u  = beta (v - S'^T k)                          the delta against the decayed state
//   S  = S' + k u^T
//   o  = S^T q = S'^T q + (k.q) u                   so the output needs no second read of the state
//
// Source: Kimi Linear, arXiv 2510.26692, equation 1 with the fine-grained decay; fla ops/kda/naive.py
// (naive_recurrent_kda), read 2026-11.
//
// Shapes:   state S [K][V] f32, row-major by key; q, k, decay [K]; v, out [V].
//           k is L2-normalized, q is L2-normalized and scaled by K^-0.5, decay = exp(g) in [0, 1], beta in
//           (0, 1).
// In-out:   state. `out` may alias v, nothing else may alias.
// Numerics: f32. Per value column: s' = decay[i] * s; pk = fma(k[i], s', pk); pq = fma(q[i], s', pq) in
//           ascending i from zero; kq = fma(k[i], q[i], kq) likewise; u = beta * (v - pk);
//           s = fma(k[i], u, s'); o = fma(kq, u, pq). Binding, so every tier gives the same bits.
// Cost:     6 K V flop; the state is read twice (the second time from cache) and written once: 8 K V bytes of
//           memory traffic, which is the floor.
// Range:    heads are independent; callers split over heads.
#pragma once

#include <cstdint>
#include <span>

#include "kernels/tier.h"

namespace waste::kernels {

struct KdaHead {
    const float* q;
    const float* k;
    const float* v;
    const float* decay;
    float beta;
    int64_t key_dim;
    int64_t value_dim;
};

using KdaStep = void (*)(const KdaHead& head, float* state, float* out);

struct KdaStepVariant {
    Tier tier;
    KdaStep run;
};
std::span<const KdaStepVariant> kda_step_variants();

/// Decay exponents of one head: decay[i] = exp(g[i]), z[i] = raw[i] + dt_bias[i], a = exp(a_log).
///   bounded (K3):               g = lower_bound * sigmoid(a z)
///   unbounded (Kimi-Linear):    g = -a * softplus(z)
/// g <= 0 always, so decay never overflows; it may underflow to 0 in the unbounded form.
void kda_decay_bounded(const float* raw, const float* dt_bias, float a_log, float lower_bound, int64_t n,
                       float* decay);
void kda_decay_softplus(const float* raw, const float* dt_bias, float a_log, int64_t n, float* decay);

}  // namespace waste::kernels
