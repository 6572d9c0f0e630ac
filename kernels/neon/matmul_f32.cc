#include "kernels/neon/layouts.h"
#include "kernels/tile_f32.h"

// f32 activations. A block type walks one block of a panel: pairs(block, visit) calls
// visit(c, part, even, odd) with the f32 weights of columns c and c + 1 for c = 0, 2, .. 126 in each part.
namespace waste::kernels::neon {
namespace {

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            const float* weights = at<float>(block) + c * kPanelRows;
            for (int part = 0; part < kParts; ++part) {
                visit(c, part, vld1q_f32(weights + part * 4), vld1q_f32(weights + 16 + part * 4));
            }
        }
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int part = 0; part < kParts; ++part) {
                const uint32x4_t both = vld1q_u32(at<uint32_t>(block + c * 32 + part * 16));
                visit(c, part, vreinterpretq_f32_u32(vshlq_n_u32(both, 16)),
                      vreinterpretq_f32_u32(vandq_u32(both, vdupq_n_u32(0xffff0000u))));
            }
        }
    }
};

/// Four columns whose signed codes stand in the four bytes of each lane.
template <typename Visit>
void visit_quad(int64_t c, int part, int8x16_t codes, float32x4_t scale, const Visit& visit) {
    const int32x4_t lanes = vreinterpretq_s32_s8(codes);
    const auto weight = [lanes, scale](int shift) {
        const int32x4_t top = vshlq_s32(lanes, vdupq_n_s32(24 - shift));
        return vmulq_f32(vcvtq_f32_s32(vshrq_n_s32(top, 24)), scale);
    };
    visit(c, part, weight(0), weight(8));
    visit(c + 2, part, weight(16), weight(24));
}

/// Every integer format: the codes as the integer kernels unpack them, times their scales.
template <typename Layout>
struct ScaledBlock {
    static constexpr int64_t kBytes = Layout::kBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        alignas(16) int8_t scratch[kBlockCols * kPanelRows];
        const int8_t* codes = Layout::signed_codes(block, scratch);
        for (int part = 0; part < kParts; ++part) {
            for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
                const float32x4_t scale =
                    vmulq_n_f32(Layout::scale(block, quad / 8, part), Layout::kScaleFactor);
                visit_quad(quad * 4, part, vld1q_s8(codes + quad * 64 + part * 16), scale, visit);
            }
        }
    }
};

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
            const float* columns = b < full_blocks ? x + b * kBlockCols : tail;
            float32x4_t even_sum[kParts];
            float32x4_t odd_sum[kParts];
            for (int part = 0; part < kParts; ++part) even_sum[part] = odd_sum[part] = vdupq_n_f32(0.0f);
            Block::pairs(block, [&](int64_t c, int part, float32x4_t even, float32x4_t odd) {
                even_sum[part] = vfmaq_n_f32(even_sum[part], even, columns[c]);
                odd_sum[part] = vfmaq_n_f32(odd_sum[part], odd, columns[c + 1]);
            });
            for (int part = 0; part < kParts; ++part) {
                total[part] = vaddq_f32(total[part], vaddq_f32(even_sum[part], odd_sum[part]));
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

/// 4 parts x 6 tokens are 24 sums in 32 registers, so the even columns are summed before the odd ones.
template <typename Block>
struct TileKernel {
    static constexpr int kPanels = 2;
    static constexpr int kTokens = 6;
    static constexpr int64_t kBytes = Block::kBytes;

    /// The block as f32 [128 cols][16 rows].
    static const float* decode(const std::byte* block, float* scratch) {
        Block::pairs(block, [&](int64_t c, int part, float32x4_t even, float32x4_t odd) {
            vst1q_f32(scratch + c * kPanelRows + part * 4, even);
            vst1q_f32(scratch + (c + 1) * kPanelRows + part * 4, odd);
        });
        return scratch;
    }

    /// Every second column of one panel, from `w` and `x` on.
    template <int kUsedTokens>
    static void sum_chain(const float* w, const float* x, int64_t x_stride, float32x4_t (*sum)[kParts]) {
        float32x4_t chain[kUsedTokens][kParts];
        for (auto& token : chain) {
            for (float32x4_t& part : token) part = vdupq_n_f32(0.0f);
        }
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            float32x4_t weights[kParts];
            for (int part = 0; part < kParts; ++part)
                weights[part] = vld1q_f32(w + c * kPanelRows + part * 4);
            for (int t = 0; t < kUsedTokens; ++t) {
                const float32x4_t activation = vdupq_n_f32(x[t * x_stride + c]);
                for (int part = 0; part < kParts; ++part) {
                    chain[t][part] = vfmaq_f32(chain[t][part], weights[part], activation);
                }
            }
        }
        for (int t = 0; t < kUsedTokens; ++t) {
            for (int part = 0; part < kParts; ++part) sum[t][part] = chain[t][part];
        }
    }

    template <int kUsedPanels, int kUsedTokens>
    static void add(const float* const* w, const float* x, int64_t x_stride,
                    float (*totals)[kPanels][kPanelRows]) {
        for (int p = 0; p < kUsedPanels; ++p) {
            float32x4_t even[kUsedTokens][kParts];
            float32x4_t odd[kUsedTokens][kParts];
            sum_chain<kUsedTokens>(w[p], x, x_stride, even);
            sum_chain<kUsedTokens>(w[p] + kPanelRows, x + 1, x_stride, odd);
            for (int t = 0; t < kUsedTokens; ++t) {
                for (int part = 0; part < kParts; ++part) {
                    float* total = totals[t][p] + part * 4;
                    const float32x4_t sum = vaddq_f32(even[t][part], odd[t][part]);
                    vst1q_f32(total, vaddq_f32(vld1q_f32(total), sum));
                }
            }
        }
    }
};

/// Stored as the inner kernel wants it.
template <>
const float* TileKernel<F32Block>::decode(const std::byte* block, float*) {
    return at<float>(block);
}

template <typename Block>
void run_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel_begin,
             int64_t panel_end, float* y, int64_t y_stride) {
    if (tokens == 1) return one_f32<Block>(w, x, panel_begin, panel_end, y);
    multiply_f32<TileKernel<Block>>(w, x, x_stride, tokens, panel_begin, panel_end, y, y_stride);
}

}  // namespace

const MatmulF32Variant kMatmulF32[] = {
    {Tier::neon, Format::f32, run_f32<F32Block>},
    {Tier::neon, Format::bf16, run_f32<Bf16Block>},
    {Tier::neon, Format::q8, run_f32<ScaledBlock<Q8Layout>>},
    {Tier::neon, Format::q4, run_f32<ScaledBlock<Q4Layout>>},
    {Tier::neon, Format::mxfp4, run_f32<ScaledBlock<Mxfp4Layout>>},
};

}  // namespace waste::kernels::neon
