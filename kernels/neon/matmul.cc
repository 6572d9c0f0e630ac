#include "kernels/matmul.h"

#include <arm_neon.h>

#include "kernels/variants.h"

// Four vectors are the 16 rows of a panel: part p has rows 4p to 4p + 3.
namespace waste::kernels::neon {
namespace {

constexpr int kParts = 4;

template <typename T>
const T* at(const std::byte* data) {
    return reinterpret_cast<const T*>(data);
}

float32x4_t widen_bf16(const std::byte* data) {
    return vreinterpretq_f32_u32(vshll_n_u16(vld1_u16(at<uint16_t>(data)), 16));
}

/// Byte 0 stands for 2^-127, a subnormal; every other exponent is larger, so the maximum puts it right.
float32x4_t widen_e8m0(const std::byte* data) {
    uint32_t four;
    __builtin_memcpy(&four, data, sizeof four);
    const uint16x8_t wide = vmovl_u8(vreinterpret_u8_u32(vdup_n_u32(four)));
    const uint32x4_t bits = vshlq_n_u32(vmovl_u16(vget_low_u16(wide)), 23);
    return vreinterpretq_f32_u32(vmaxq_u32(bits, vdupq_n_u32(0x00400000u)));
}

int8x16_t broadcast_quad(const int8_t* codes) {
    int32_t quad;
    __builtin_memcpy(&quad, codes, sizeof quad);
    return vreinterpretq_s8_s32(vdupq_n_s32(quad));
}

/// The two chains of a block for all parts of the rows.
struct Chains {
    float32x4_t even[kParts];
    float32x4_t odd[kParts];
};

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            const float* weights = at<float>(block) + c * kPanelRows;
            for (int part = 0; part < kParts; ++part) {
                sum.even[part] = vfmaq_n_f32(sum.even[part], vld1q_f32(weights + part * 4), x[c]);
                sum.odd[part] = vfmaq_n_f32(sum.odd[part], vld1q_f32(weights + 16 + part * 4), x[c + 1]);
            }
        }
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int part = 0; part < kParts; ++part) {
                const uint32x4_t pairs = vld1q_u32(at<uint32_t>(block + c * 32 + part * 16));
                const float32x4_t even = vreinterpretq_f32_u32(vshlq_n_u32(pairs, 16));
                const float32x4_t odd = vreinterpretq_f32_u32(vandq_u32(pairs, vdupq_n_u32(0xffff0000u)));
                sum.even[part] = vfmaq_n_f32(sum.even[part], even, x[c]);
                sum.odd[part] = vfmaq_n_f32(sum.odd[part], odd, x[c + 1]);
            }
        }
    }
};

/// Adds four columns whose signed codes stand in the four bytes of each lane.
void accumulate_quad(int8x16_t codes, float32x4_t scale, int part, const float* x, Chains& sum) {
    const int32x4_t lanes = vreinterpretq_s32_s8(codes);
    const auto weight = [lanes, scale](int shift) {
        const int32x4_t top = vshlq_s32(lanes, vdupq_n_s32(24 - shift));
        return vmulq_f32(vcvtq_f32_s32(vshrq_n_s32(top, 24)), scale);
    };
    sum.even[part] = vfmaq_n_f32(sum.even[part], weight(0), x[0]);
    sum.odd[part] = vfmaq_n_f32(sum.odd[part], weight(8), x[1]);
    sum.even[part] = vfmaq_n_f32(sum.even[part], weight(16), x[2]);
    sum.odd[part] = vfmaq_n_f32(sum.odd[part], weight(24), x[3]);
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static float32x4_t scale(const std::byte* block, int64_t group, int part) {
        return widen_bf16(block + (group / 2 * kPanelRows + part * 4) * 2);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
            for (int part = 0; part < kParts; ++part) {
                const int8x16_t codes = vld1q_s8(at<int8_t>(block + kQ8ScaleBytes + quad * 64 + part * 16));
                accumulate_quad(codes, scale(block, quad / 8, part), part, x + quad * 4, sum);
            }
        }
    }

    static int32x4_t dot(const std::byte* block, int64_t group, int part, const int8_t* a) {
        const std::byte* codes = block + kQ8ScaleBytes + group * kGroupCols * kPanelRows + part * 16;
        int32x4_t sum = vdupq_n_s32(0);
        for (int64_t quad = 0; quad < 8; ++quad) {
            sum = vdotq_s32(sum, vld1q_s8(at<int8_t>(codes + quad * 64)), broadcast_quad(a + quad * 4));
        }
        return sum;
    }
};

/// What the two formats of nibbles share: in vector i of a group, quad i is in the low and quad i + 4 in the
/// high halves. `Format` gives kScaleBytes, scale() and decode(), which maps nibbles to signed codes.
template <typename Format>
struct NibbleBlock : Format {
    static constexpr int64_t kBytes = Format::kScaleBytes + kBlockCols * kPanelRows / 2;

    static const uint8_t* codes(const std::byte* block, int64_t group, int part) {
        return at<uint8_t>(block + Format::kScaleBytes + group * kNibbleGroupBytes + part * 16);
    }

    static void accumulate(const std::byte* block, const float* x, Chains& sum) {
        for (int64_t group = 0; group < 4; ++group, x += kGroupCols) {
            for (int part = 0; part < kParts; ++part) {
                const uint8_t* bytes = codes(block, group, part);
                const float32x4_t scale =
                    vmulq_n_f32(Format::scale(block, group, part), Format::kScaleFactor);
                for (int64_t quad = 0; quad < 4; ++quad) {
                    const uint8x16_t low = vandq_u8(vld1q_u8(bytes + quad * 64), vdupq_n_u8(15));
                    accumulate_quad(Format::decode(low), scale, part, x + quad * 4, sum);
                }
                for (int64_t quad = 0; quad < 4; ++quad) {
                    const uint8x16_t high = vshrq_n_u8(vld1q_u8(bytes + quad * 64), 4);
                    accumulate_quad(Format::decode(high), scale, part, x + 16 + quad * 4, sum);
                }
            }
        }
    }

    static int32x4_t dot(const std::byte* block, int64_t group, int part, const int8_t* a) {
        const uint8_t* bytes = codes(block, group, part);
        int32x4_t low = vdupq_n_s32(0);
        int32x4_t high = vdupq_n_s32(0);
        for (int64_t quad = 0; quad < 4; ++quad) {
            const uint8x16_t both = vld1q_u8(bytes + quad * 64);
            low =
                vdotq_s32(low, Format::decode(vandq_u8(both, vdupq_n_u8(15))), broadcast_quad(a + quad * 4));
            high = vdotq_s32(high, Format::decode(vshrq_n_u8(both, 4)), broadcast_quad(a + 16 + quad * 4));
        }
        return vaddq_s32(low, high);
    }
};

struct Q4Format {
    static constexpr int64_t kScaleBytes = kQ4ScaleBytes;
    static constexpr float kScaleFactor = 1.0f;

    static float32x4_t scale(const std::byte* block, int64_t group, int part) {
        return widen_bf16(block + (group * kPanelRows + part * 4) * 2);
    }
    static int8x16_t decode(uint8x16_t stored) {
        return vsubq_s8(vreinterpretq_s8_u8(stored), vdupq_n_s8(8));
    }
};

struct Mxfp4Format {
    static constexpr int64_t kScaleBytes = kMxfp4ScaleBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled

    static float32x4_t scale(const std::byte* block, int64_t group, int part) {
        return widen_e8m0(block + group * kPanelRows + part * 4);
    }
    static int8x16_t decode(uint8x16_t nibbles) {
        alignas(16) constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        return vqtbl1q_s8(vld1q_s8(kDoubled), nibbles);
    }
};

using Q4Block = NibbleBlock<Q4Format>;
using Mxfp4Block = NibbleBlock<Mxfp4Format>;

void store_rows(const float32x4_t (&total)[kParts], int64_t rows, float* y) {
    float all[kPanelRows];
    for (int part = 0; part < kParts; ++part) vst1q_f32(all + part * 4, total[part]);
    for (int64_t row = 0; row < kPanelRows && row < rows; ++row) y[row] = all[row];
}

template <typename Block>
void one_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t full_blocks = w.cols / kBlockCols;
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    // The last block may reach past x.
    float tail[kBlockCols] = {};
    for (int64_t c = full_blocks * kBlockCols; c < w.cols; ++c) tail[c % kBlockCols] = x[c];

    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        float32x4_t total[kParts];
        for (float32x4_t& part : total) part = vdupq_n_f32(0.0f);
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            Chains sum;
            for (float32x4_t& part : sum.even) part = vdupq_n_f32(0.0f);
            for (float32x4_t& part : sum.odd) part = vdupq_n_f32(0.0f);
            Block::accumulate(block, b < full_blocks ? x + b * kBlockCols : tail, sum);
            for (int part = 0; part < kParts; ++part) {
                total[part] = vaddq_f32(total[part], vaddq_f32(sum.even[part], sum.odd[part]));
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Block>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        float32x4_t total[kParts];
        for (float32x4_t& part : total) part = vdupq_n_f32(0.0f);
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            for (int64_t g = 0; g < 4; ++g) {
                const int64_t group = b * x.stride * 4 + g;
                const float activation_scale = Block::kScaleFactor * x.scales[group];
                for (int part = 0; part < kParts; ++part) {
                    const int32x4_t dot = Block::dot(block, g, part, x.codes + group * kGroupCols);
                    const float32x4_t scale = vmulq_n_f32(Block::scale(block, g, part), activation_scale);
                    total[part] = vfmaq_f32(total[part], vcvtq_f32_s32(dot), scale);
                }
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Block>
void run_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel_begin,
             int64_t panel_end, float* y, int64_t y_stride) {
    for (int64_t t = 0; t < tokens; ++t) {
        one_f32<Block>(w, x + t * x_stride, panel_begin, panel_end, y + t * y_stride);
    }
}

template <typename Block>
void run_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
              int64_t y_stride) {
    for (int64_t t = 0; t < x.tokens; ++t) {
        one_int8<Block>(w, x.part(t, 1), panel_begin, panel_end, y + t * y_stride);
    }
}

}  // namespace

const MatmulF32Variant kMatmulF32[] = {
    {Tier::neon, Format::f32, run_f32<F32Block>},     {Tier::neon, Format::bf16, run_f32<Bf16Block>},
    {Tier::neon, Format::q8, run_f32<Q8Block>},       {Tier::neon, Format::q4, run_f32<Q4Block>},
    {Tier::neon, Format::mxfp4, run_f32<Mxfp4Block>},
};

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::neon, Format::q8, run_int8<Q8Block>},
    {Tier::neon, Format::q4, run_int8<Q4Block>},
    {Tier::neon, Format::mxfp4, run_int8<Mxfp4Block>},
};

}  // namespace waste::kernels::neon
