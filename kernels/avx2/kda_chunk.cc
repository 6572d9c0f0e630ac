#include <immintrin.h>

#include "kernels/kda_chunk_simd.h"
#include "kernels/variants.h"

namespace waste::kernels::avx2 {
namespace {

struct Simd {
    using Vector = __m256;
    static constexpr int kLanes = 8;
    static constexpr int kTileRows = 4;
    static constexpr int kTileVectors = 2;
    static constexpr int kPairRows = 2;

    static Vector zero() { return _mm256_setzero_ps(); }
    static Vector load(const float* at) { return _mm256_loadu_ps(at); }
    static void store(float* at, Vector x) { _mm256_storeu_ps(at, x); }
    static Vector broadcast(float x) { return _mm256_set1_ps(x); }
    static Vector mul(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
    static Vector sub(Vector a, Vector b) { return _mm256_sub_ps(a, b); }
    static Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }

    static float fold(const Vector (&chains)[2]) {
        const __m256 eight = _mm256_add_ps(chains[0], chains[1]);
        const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
        const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
        return _mm_cvtss_f32(_mm_add_ss(two, _mm_movehdup_ps(two)));
    }
};

}  // namespace

void kda_chunk(const KdaChunkHead& head, float* state, float* scratch) {
    run_chunk<Simd>(head, state, scratch);
}

}  // namespace waste::kernels::avx2
