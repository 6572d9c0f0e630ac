#include "kernels/kda.h"

#include <immintrin.h>

#include "kernels/variants.h"

namespace waste::kernels::avx2 {
namespace {

/// Reads and writes whole vectors.
struct FullVector {
    __m256 load(const float* at) const { return _mm256_loadu_ps(at); }
    void store(float* at, __m256 value) const { _mm256_storeu_ps(at, value); }
};

/// Reads and writes the lanes whose mask is negative.
struct PartVector {
    __m256i mask;

    __m256 load(const float* at) const { return _mm256_maskload_ps(at, mask); }
    void store(float* at, __m256 value) const { _mm256_maskstore_ps(at, mask, value); }
};

/// kVectors * 8 value columns from `col` on. k.q is summed along with the first pass, where its latency costs
/// nothing. Four vectors are what sixteen registers hold.
template <int kVectors, typename Access>
void run_strip(const KdaHead& head, int64_t col, const Access& access, float* state, float* out) {
    __m256 pk[kVectors];
    __m256 pq[kVectors];
    for (int v = 0; v < kVectors; ++v) pk[v] = pq[v] = _mm256_setzero_ps();
    float kq = 0.0f;
    const float* row = state + col;
    for (int64_t i = 0; i < head.key_dim; ++i, row += head.value_dim) {
        const __m256 k = _mm256_set1_ps(head.k[i]);
        const __m256 q = _mm256_set1_ps(head.q[i]);
        const __m256 decay = _mm256_set1_ps(head.decay[i]);
        kq = __builtin_fmaf(head.k[i], head.q[i], kq);
        for (int v = 0; v < kVectors; ++v) {
            const __m256 decayed = _mm256_mul_ps(decay, access.load(row + v * 8));
            pk[v] = _mm256_fmadd_ps(k, decayed, pk[v]);
            pq[v] = _mm256_fmadd_ps(q, decayed, pq[v]);
        }
    }
    __m256 u[kVectors];
    for (int v = 0; v < kVectors; ++v) {
        const __m256 value = access.load(head.v + col + v * 8);
        u[v] = _mm256_mul_ps(_mm256_set1_ps(head.beta), _mm256_sub_ps(value, pk[v]));
        access.store(out + col + v * 8, _mm256_fmadd_ps(_mm256_set1_ps(kq), u[v], pq[v]));
    }
    float* updated = state + col;
    for (int64_t i = 0; i < head.key_dim; ++i, updated += head.value_dim) {
        const __m256 k = _mm256_set1_ps(head.k[i]);
        const __m256 decay = _mm256_set1_ps(head.decay[i]);
        for (int v = 0; v < kVectors; ++v) {
            const __m256 decayed = _mm256_mul_ps(decay, access.load(updated + v * 8));
            access.store(updated + v * 8, _mm256_fmadd_ps(k, u[v], decayed));
        }
    }
}

}  // namespace

void kda_step(const KdaHead& head, float* state, float* out) {
    int64_t col = 0;
    for (; col + 32 <= head.value_dim; col += 32) run_strip<4>(head, col, FullVector{}, state, out);
    for (; col + 8 <= head.value_dim; col += 8) run_strip<1>(head, col, FullVector{}, state, out);
    if (col < head.value_dim) {
        const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
        const __m256i rest = _mm256_set1_epi32(static_cast<int32_t>(head.value_dim - col));
        run_strip<1>(head, col, PartVector{_mm256_cmpgt_epi32(rest, lane)}, state, out);
    }
}

}  // namespace waste::kernels::avx2
