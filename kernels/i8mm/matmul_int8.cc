#include "kernels/neon/int8.h"

namespace waste::kernels::i8mm {
namespace {

/// SMMLA multiplies 2 rows x 8 columns by 2 tokens x 8 columns: twice the products of SDOT. Two quads of four rows
/// are zipped into the two pairs of those rows, each with its eight columns.
struct Dots {
    static const int8_t* arrange(const int8_t* codes, int8_t* scratch) {
        for (int64_t quad = 0; quad < kBlockCols / 4; quad += 2) {
            for (int64_t i = quad * 64; i < quad * 64 + 64; i += 16) {
                const int32x4_t first = vreinterpretq_s32_s8(vld1q_s8(codes + i));
                const int32x4_t second = vreinterpretq_s32_s8(vld1q_s8(codes + i + 64));
                vst1q_s8(scratch + i, vreinterpretq_s8_s32(vzip1q_s32(first, second)));
                vst1q_s8(scratch + i + 64, vreinterpretq_s8_s32(vzip2q_s32(first, second)));
            }
        }
        return scratch;
    }

    /// Lanes of square[pair of rows]: row 0 token 0, row 0 token 1, row 1 token 0, row 1 token 1.
    static void add_octet(const int8_t* codes, const int8x16_t& activations, int32x4_t (&square)[8]) {
        for (int part = 0; part < kParts; ++part) {
            const int8x16_t upper = vld1q_s8(codes + part * 16);
            const int8x16_t lower = vld1q_s8(codes + part * 16 + 64);
            square[part * 2] = vmmlaq_s32(square[part * 2], upper, activations);
            square[part * 2 + 1] = vmmlaq_s32(square[part * 2 + 1], lower, activations);
        }
    }

    template <int kTokens>
    static void sum(const int8_t* codes, const int8_t* a, int32x4_t (*dot)[kParts]) {
        constexpr int kPairs = (kTokens + 1) / 2;
        int32x4_t square[kPairs][8];
        for (auto& pair : square) {
            for (int32x4_t& lanes : pair) lanes = vdupq_n_s32(0);
        }
        for (int64_t c = 0; c < kGroupCols; c += 16) {
            for (int pair = 0; pair < kPairs; ++pair) {
                // An odd last token is its own partner.
                const int partner = pair * 2 + 1 < kTokens ? pair * 2 + 1 : pair * 2;
                const int64x2_t first = vreinterpretq_s64_s8(vld1q_s8(a + pair * 2 * kBlockCols + c));
                const int64x2_t second = vreinterpretq_s64_s8(vld1q_s8(a + partner * kBlockCols + c));
                add_octet(codes + c * 16, vreinterpretq_s8_s64(vzip1q_s64(first, second)), square[pair]);
                add_octet(codes + c * 16 + 128, vreinterpretq_s8_s64(vzip2q_s64(first, second)),
                          square[pair]);
            }
        }
        for (int t = 0; t < kTokens; ++t) {
            for (int part = 0; part < kParts; ++part) {
                const int32x4_t upper = square[t / 2][part * 2];
                const int32x4_t lower = square[t / 2][part * 2 + 1];
                dot[t][part] = t % 2 == 0 ? vuzp1q_s32(upper, lower) : vuzp2q_s32(upper, lower);
            }
        }
    }
};

}  // namespace

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::i8mm, Format::q8, run_int8<Q8Layout, Dots>},
    {Tier::i8mm, Format::q4, run_int8<Q4Layout, Dots>},
    {Tier::i8mm, Format::mxfp4, run_int8<Mxfp4Layout, Dots>},
};

}  // namespace waste::kernels::i8mm
