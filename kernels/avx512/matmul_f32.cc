#include "kernels/avx512/lanes.h"
#include "kernels/tile_f32.h"

// f32 activations. A block type walks one block of a panel: pairs(block, visit) calls visit(c, even, odd) with
// the f32 weights of columns c and c + 1 for c = 0, 2, .. 126.
namespace waste::kernels::avx512 {
namespace {

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            visit(c, _mm512_load_ps(block + c * 64), _mm512_load_ps(block + c * 64 + 64));
        }
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        const __m512i high = _mm512_set1_epi32(static_cast<int32_t>(0xffff0000u));
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            const __m512i both = load(block + c * 32);
            visit(c, _mm512_castsi512_ps(_mm512_slli_epi32(both, 16)),
                  _mm512_castsi512_ps(_mm512_and_si512(both, high)));
        }
    }
};

/// Four columns whose values stand in the four bytes of each lane; `decode` picks one by its shift.
template <typename Decode, typename Visit>
void visit_quad(int64_t c, const Decode& decode, __m512 scale, const Visit& visit) {
    visit(c, _mm512_mul_ps(decode(0), scale), _mm512_mul_ps(decode(8), scale));
    visit(c + 2, _mm512_mul_ps(decode(16), scale), _mm512_mul_ps(decode(24), scale));
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
            const __m512i codes = load(block + kQ8ScaleBytes + quad * 64);
            const auto decode = [codes](int shift) {
                const __m512i top = _mm512_sllv_epi32(codes, _mm512_set1_epi32(24 - shift));
                return _mm512_cvtepi32_ps(_mm512_srai_epi32(top, 24));
            };
            visit_quad(quad * 4, decode, widen_bf16(block + quad / 16 * kPanelRows * 2), visit);
        }
    }
};

/// One group of nibbles from column `c` on: in its vector i, quad i is in the low and quad i + 4 in the high
/// halves. `values` are those of the 16 codes.
template <typename Visit>
void visit_nibbles(const std::byte* codes, int64_t c, __m512 values, __m512 scale, const Visit& visit) {
    for (int half = 0; half < 2; ++half) {
        for (int64_t quad = 0; quad < 4; ++quad) {
            const __m512i bytes = load(codes + quad * 64);
            const auto decode = [&](int shift) {
                const __m512i lanes = _mm512_srlv_epi32(bytes, _mm512_set1_epi32(shift + half * 4));
                return _mm512_permutexvar_ps(lanes, values);
            };
            visit_quad(c + half * 16 + quad * 4, decode, scale, visit);
        }
    }
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        const __m512 values = _mm512_setr_ps(-8, -7, -6, -5, -4, -3, -2, -1, 0, 1, 2, 3, 4, 5, 6, 7);
        for (int64_t group = 0; group < kBlockGroups; ++group) {
            visit_nibbles(block + kQ4ScaleBytes + group * kNibbleGroupBytes, group * kGroupCols, values,
                          widen_bf16(block + group * kPanelRows * 2), visit);
        }
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        const __m512 values = _mm512_setr_ps(0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f,  //
                                             0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f);
        for (int64_t group = 0; group < kBlockGroups; ++group) {
            visit_nibbles(block + kMxfp4ScaleBytes + group * kNibbleGroupBytes, group * kGroupCols, values,
                          widen_e8m0(block + group * kPanelRows), visit);
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
        __m512 total = _mm512_setzero_ps();
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            const float* columns = b < full_blocks ? x + b * kBlockCols : tail;
            __m512 even_sum = _mm512_setzero_ps();
            __m512 odd_sum = _mm512_setzero_ps();
            Block::pairs(block, [&](int64_t c, __m512 even, __m512 odd) {
                even_sum = _mm512_fmadd_ps(even, _mm512_set1_ps(columns[c]), even_sum);
                odd_sum = _mm512_fmadd_ps(odd, _mm512_set1_ps(columns[c + 1]), odd_sum);
            });
            total = _mm512_add_ps(total, _mm512_add_ps(even_sum, odd_sum));
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

/// 2 panels x 6 tokens x 2 chains are 24 sums in registers: a column is 2 loads, 6 broadcasts and 12
/// multiply-adds, so neither the load ports nor the latency of 4 cycles hold the two multipliers up.
template <typename Block>
struct TileKernel {
    static constexpr int kPanels = 2;
    static constexpr int kTokens = 6;
    static constexpr int64_t kBytes = Block::kBytes;

    /// The block as f32 [128 cols][16 rows].
    static const float* decode(const std::byte* block, float* scratch) {
        Block::pairs(block, [&](int64_t c, __m512 even, __m512 odd) {
            _mm512_store_ps(scratch + c * kPanelRows, even);
            _mm512_store_ps(scratch + (c + 1) * kPanelRows, odd);
        });
        return scratch;
    }

    template <int kUsedPanels, int kUsedTokens>
    static void add(const float* const* w, const float* x, int64_t x_stride,
                    float (*totals)[kPanels][kPanelRows]) {
        __m512 chain[2][kUsedTokens][kUsedPanels];
        for (auto& parity : chain) {
            for (auto& token : parity) {
                for (__m512& sum : token) sum = _mm512_setzero_ps();
            }
        }
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int odd = 0; odd < 2; ++odd) {
                __m512 weights[kUsedPanels];
                for (int p = 0; p < kUsedPanels; ++p)
                    weights[p] = _mm512_load_ps(w[p] + (c + odd) * kPanelRows);
                for (int t = 0; t < kUsedTokens; ++t) {
                    const __m512 activation = _mm512_set1_ps(x[t * x_stride + c + odd]);
                    for (int p = 0; p < kUsedPanels; ++p) {
                        chain[odd][t][p] = _mm512_fmadd_ps(weights[p], activation, chain[odd][t][p]);
                    }
                }
            }
        }
        for (int t = 0; t < kUsedTokens; ++t) {
            for (int p = 0; p < kUsedPanels; ++p) {
                const __m512 sum = _mm512_add_ps(chain[0][t][p], chain[1][t][p]);
                _mm512_store_ps(totals[t][p], _mm512_add_ps(_mm512_load_ps(totals[t][p]), sum));
            }
        }
    }
};

/// Stored as the inner kernel wants it.
template <>
const float* TileKernel<F32Block>::decode(const std::byte* block, float*) {
    return reinterpret_cast<const float*>(block);
}

template <typename Block>
void run_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel_begin,
             int64_t panel_end, float* y, int64_t y_stride) {
    if (tokens == 1) return one_f32<Block>(w, x, panel_begin, panel_end, y);
    multiply_f32<TileKernel<Block>>(w, x, x_stride, tokens, panel_begin, panel_end, y, y_stride);
}

}  // namespace

const MatmulF32Variant kMatmulF32[] = {
    {Tier::avx512, Format::f32, run_f32<F32Block>},     {Tier::avx512, Format::bf16, run_f32<Bf16Block>},
    {Tier::avx512, Format::q8, run_f32<Q8Block>},       {Tier::avx512, Format::q4, run_f32<Q4Block>},
    {Tier::avx512, Format::mxfp4, run_f32<Mxfp4Block>},
};

}  // namespace waste::kernels::avx512
