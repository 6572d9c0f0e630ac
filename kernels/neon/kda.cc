#include "kernels/kda.h"

#include <arm_neon.h>

#include "kernels/variants.h"

namespace waste::kernels::neon {
namespace {

/// Reads and writes whole vectors.
struct FullVector {
    float32x4_t load(const float* at) const { return vld1q_f32(at); }
    void store(float* at, float32x4_t value) const { vst1q_f32(at, value); }
};

/// Reads and writes the first `lanes` lanes.
struct PartVector {
    int64_t lanes;

    float32x4_t load(const float* at) const {
        float all[4] = {};
        for (int64_t i = 0; i < lanes; ++i) all[i] = at[i];
        return vld1q_f32(all);
    }
    void store(float* at, float32x4_t value) const {
        float all[4];
        vst1q_f32(all, value);
        for (int64_t i = 0; i < lanes; ++i) at[i] = all[i];
    }
};

/// kVectors * 4 value columns from `col` on. k.q is summed along with the first pass, where its latency costs
/// nothing.
template <int kVectors, typename Access>
void run_strip(const KdaHead& head, int64_t col, const Access& access, float* state, float* out) {
    float32x4_t pk[kVectors];
    float32x4_t pq[kVectors];
    for (int v = 0; v < kVectors; ++v) pk[v] = pq[v] = vdupq_n_f32(0.0f);
    float kq = 0.0f;
    const float* row = state + col;
    for (int64_t i = 0; i < head.key_dim; ++i, row += head.value_dim) {
        kq = __builtin_fmaf(head.k[i], head.q[i], kq);
        for (int v = 0; v < kVectors; ++v) {
            const float32x4_t decayed = vmulq_n_f32(access.load(row + v * 4), head.decay[i]);
            pk[v] = vfmaq_n_f32(pk[v], decayed, head.k[i]);
            pq[v] = vfmaq_n_f32(pq[v], decayed, head.q[i]);
        }
    }
    float32x4_t u[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        const float32x4_t value = access.load(head.v + col + v * 4);
        u[v] = vmulq_n_f32(vsubq_f32(value, pk[v]), head.beta);
        access.store(out + col + v * 4, vfmaq_n_f32(pq[v], u[v], kq));
    }
    float* updated = state + col;
    for (int64_t i = 0; i < head.key_dim; ++i, updated += head.value_dim) {
        for (int v = 0; v < kVectors; ++v) {
            const float32x4_t decayed = vmulq_n_f32(access.load(updated + v * 4), head.decay[i]);
            access.store(updated + v * 4, vfmaq_n_f32(decayed, u[v], head.k[i]));
        }
    }
}

}  // namespace

void kda_step(const KdaHead& head, float* state, float* out) {
    int64_t col = 0;
    for (; col + 32 <= head.value_dim; col += 32) run_strip<8>(head, col, FullVector{}, state, out);
    for (; col + 4 <= head.value_dim; col += 4) run_strip<1>(head, col, FullVector{}, state, out);
    if (col < head.value_dim) run_strip<1>(head, col, PartVector{head.value_dim - col}, state, out);
}

}  // namespace waste::kernels::neon
