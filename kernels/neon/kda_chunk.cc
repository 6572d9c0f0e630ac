#include <arm_neon.h>

#include "kernels/kda_chunk_simd.h"
#include "kernels/variants.h"

namespace waste::kernels::neon {
namespace {

struct Simd {
    using Vector = float32x4_t;
    static constexpr int kLanes = 4;
    static constexpr int kTileRows = 4;
    static constexpr int kTileVectors = 4;
    static constexpr int kPairRows = 2;

    static Vector zero() { return vdupq_n_f32(0.0f); }
    static Vector load(const float* at) { return vld1q_f32(at); }
    static void store(float* at, Vector x) { vst1q_f32(at, x); }
    static Vector broadcast(float x) { return vdupq_n_f32(x); }
    static Vector mul(Vector a, Vector b) { return vmulq_f32(a, b); }
    static Vector sub(Vector a, Vector b) { return vsubq_f32(a, b); }
    static Vector fma(Vector a, Vector b, Vector c) { return vfmaq_f32(c, a, b); }

    static float fold(const Vector (&chains)[4]) {
        const float32x4_t four = vaddq_f32(vaddq_f32(chains[0], chains[2]), vaddq_f32(chains[1], chains[3]));
        const float32x2_t two = vadd_f32(vget_low_f32(four), vget_high_f32(four));
        return vget_lane_f32(two, 0) + vget_lane_f32(two, 1);
    }
};

}  // namespace

void kda_chunk(const KdaChunkHead& head, float* state, float* scratch) {
    run_chunk<Simd>(head, state, scratch);
}

}  // namespace waste::kernels::neon
