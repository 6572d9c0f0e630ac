#include "kernels/neon/int8.h"

namespace waste::kernels::neon {
namespace {

/// SDOT takes the four columns of a quad in every lane; the activations of four quads are one register, of which
/// the instruction picks a lane.
struct Dots {
    static const int8_t* arrange(const int8_t* codes, int8_t*) { return codes; }

    template <int kLane, int kTokens>
    static void add_quad(const int8_t* codes, const int8x16_t* activations, int32x4_t (*dot)[kParts]) {
        for (int part = 0; part < kParts; ++part) {
            const int8x16_t weights = vld1q_s8(codes + kLane * 64 + part * 16);
            for (int t = 0; t < kTokens; ++t) {
                dot[t][part] = vdotq_laneq_s32(dot[t][part], weights, activations[t], kLane);
            }
        }
    }

    template <int kTokens>
    static void sum(const int8_t* codes, const int8_t* a, int32x4_t (*dot)[kParts]) {
        for (int t = 0; t < kTokens; ++t) {
            for (int part = 0; part < kParts; ++part) dot[t][part] = vdupq_n_s32(0);
        }
        for (int half = 0; half < 2; ++half, codes += 256, a += 16) {
            int8x16_t activations[kTokens];
            for (int t = 0; t < kTokens; ++t) activations[t] = vld1q_s8(a + t * kBlockCols);
            add_quad<0, kTokens>(codes, activations, dot);
            add_quad<1, kTokens>(codes, activations, dot);
            add_quad<2, kTokens>(codes, activations, dot);
            add_quad<3, kTokens>(codes, activations, dot);
        }
    }
};

}  // namespace

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::neon, Format::q8, run_int8<Q8Layout, Dots>},
    {Tier::neon, Format::q4, run_int8<Q4Layout, Dots>},
    {Tier::neon, Format::mxfp4, run_int8<Mxfp4Layout, Dots>},
};

}  // namespace waste::kernels::neon
