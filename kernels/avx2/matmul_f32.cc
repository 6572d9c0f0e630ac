#include "kernels/avx2/lanes.h"
#include "kernels/tile_f32.h"

// f32 activations. A block type walks one block of a panel: pairs(block, visit) calls
// visit(c, half, even, odd) with the f32 weights of columns c and c + 1 for c = 0, 2, .. 126 in each half.
namespace waste::kernels::avx2 {
namespace {

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int half = 0; half < 2; ++half) {
                const std::byte* at = block + c * 64 + half * 32;
                visit(c, half, _mm256_castsi256_ps(load(at)), _mm256_castsi256_ps(load(at + 64)));
            }
        }
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        const __m256i high = _mm256_set1_epi32(static_cast<int32_t>(0xffff0000u));
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            for (int half = 0; half < 2; ++half) {
                const __m256i both = load(block + c * 32 + half * 32);
                visit(c, half, _mm256_castsi256_ps(_mm256_slli_epi32(both, 16)),
                      _mm256_castsi256_ps(_mm256_and_si256(both, high)));
            }
        }
    }
};

/// Four columns whose signed codes stand in the four bytes of each lane.
template <typename Visit>
void visit_quad(int64_t c, int half, __m256i codes, __m256 scale, const Visit& visit) {
    const auto weight = [codes, scale](int shift) {
        const __m256i top = _mm256_sllv_epi32(codes, _mm256_set1_epi32(24 - shift));
        return _mm256_mul_ps(_mm256_cvtepi32_ps(_mm256_srai_epi32(top, 24)), scale);
    };
    visit(c, half, weight(0), weight(8));
    visit(c + 2, half, weight(16), weight(24));
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
            for (int half = 0; half < 2; ++half) {
                const __m256i codes = load(block + kQ8ScaleBytes + quad * 64 + half * 32);
                visit_quad(quad * 4, half, codes, widen_bf16(block + (quad / 16 * kPanelRows + half * 8) * 2),
                           visit);
            }
        }
    }
};

/// One group of nibbles from column `c` on: in its vector i, quad i is in the low and quad i + 4 in the high
/// halves. `decode(bytes)` maps nibbles to signed codes; `scale` is that of one code.
template <typename Decode, typename Visit>
void visit_nibbles(const std::byte* codes, int64_t c, const Decode& decode, __m256 scale, int half,
                   const Visit& visit) {
    const __m256i nibble = _mm256_set1_epi8(15);
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m256i low = _mm256_and_si256(load(codes + quad * 64 + half * 32), nibble);
        visit_quad(c + quad * 4, half, decode(low), scale, visit);
    }
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m256i bytes = load(codes + quad * 64 + half * 32);
        const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
        visit_quad(c + 16 + quad * 4, half, decode(high), scale, visit);
    }
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        const auto decode = [](__m256i stored) { return _mm256_sub_epi8(stored, _mm256_set1_epi8(8)); };
        for (int64_t group = 0; group < 4; ++group) {
            const std::byte* codes = block + kQ4ScaleBytes + group * kNibbleGroupBytes;
            for (int half = 0; half < 2; ++half) {
                const __m256 scale = widen_bf16(block + (group * kPanelRows + half * 8) * 2);
                visit_nibbles(codes, group * kGroupCols, decode, scale, half, visit);
            }
        }
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;

    template <typename Visit>
    static void pairs(const std::byte* block, const Visit& visit) {
        const __m256i doubled = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        const auto decode = [doubled](__m256i nibbles) { return _mm256_shuffle_epi8(doubled, nibbles); };
        const __m256 factor = _mm256_set1_ps(0.5f);  // because the codes are doubled
        for (int64_t group = 0; group < 4; ++group) {
            const std::byte* codes = block + kMxfp4ScaleBytes + group * kNibbleGroupBytes;
            for (int half = 0; half < 2; ++half) {
                const __m256 scale = _mm256_mul_ps(factor, widen_e8m0(block + group * kPanelRows + half * 8));
                visit_nibbles(codes, group * kGroupCols, decode, scale, half, visit);
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
        __m256 total[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            const float* columns = b < full_blocks ? x + b * kBlockCols : tail;
            __m256 even_sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            __m256 odd_sum[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
            Block::pairs(block, [&](int64_t c, int half, __m256 even, __m256 odd) {
                even_sum[half] = _mm256_fmadd_ps(even, _mm256_set1_ps(columns[c]), even_sum[half]);
                odd_sum[half] = _mm256_fmadd_ps(odd, _mm256_set1_ps(columns[c + 1]), odd_sum[half]);
            });
            for (int half = 0; half < 2; ++half) {
                total[half] = _mm256_add_ps(total[half], _mm256_add_ps(even_sum[half], odd_sum[half]));
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

/// 2 halves x 6 tokens are 12 sums in 16 registers, so the even columns are summed before the odd ones. A column
/// is 2 loads, 6 broadcasts and 12 multiply-adds.
template <typename Block>
struct TileKernel {
    static constexpr int kPanels = 2;
    static constexpr int kTokens = 6;
    static constexpr int64_t kBytes = Block::kBytes;

    /// The block as f32 [128 cols][16 rows].
    static const float* decode(const std::byte* block, float* scratch) {
        Block::pairs(block, [&](int64_t c, int half, __m256 even, __m256 odd) {
            _mm256_store_ps(scratch + c * kPanelRows + half * 8, even);
            _mm256_store_ps(scratch + (c + 1) * kPanelRows + half * 8, odd);
        });
        return scratch;
    }

    /// Every second column of one panel, from `w` and `x` on.
    template <int kUsedTokens>
    static void sum_chain(const float* w, const float* x, int64_t x_stride, __m256 (*sum)[2]) {
        __m256 chain[kUsedTokens][2];
        for (auto& token : chain) token[0] = token[1] = _mm256_setzero_ps();
        for (int64_t c = 0; c < kBlockCols; c += 2) {
            const __m256 low = _mm256_load_ps(w + c * kPanelRows);
            const __m256 high = _mm256_load_ps(w + c * kPanelRows + 8);
            for (int t = 0; t < kUsedTokens; ++t) {
                const __m256 activation = _mm256_set1_ps(x[t * x_stride + c]);
                chain[t][0] = _mm256_fmadd_ps(low, activation, chain[t][0]);
                chain[t][1] = _mm256_fmadd_ps(high, activation, chain[t][1]);
            }
        }
        for (int t = 0; t < kUsedTokens; ++t) {
            sum[t][0] = chain[t][0];
            sum[t][1] = chain[t][1];
        }
    }

    template <int kUsedPanels, int kUsedTokens>
    static void add(const float* const* w, const float* x, int64_t x_stride,
                    float (*totals)[kPanels][kPanelRows]) {
        for (int p = 0; p < kUsedPanels; ++p) {
            __m256 even[kUsedTokens][2];
            __m256 odd[kUsedTokens][2];
            sum_chain<kUsedTokens>(w[p], x, x_stride, even);
            sum_chain<kUsedTokens>(w[p] + kPanelRows, x + 1, x_stride, odd);
            for (int t = 0; t < kUsedTokens; ++t) {
                for (int half = 0; half < 2; ++half) {
                    float* total = totals[t][p] + half * 8;
                    const __m256 sum = _mm256_add_ps(even[t][half], odd[t][half]);
                    _mm256_store_ps(total, _mm256_add_ps(_mm256_load_ps(total), sum));
                }
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
    {Tier::avx2, Format::f32, run_f32<F32Block>},     {Tier::avx2, Format::bf16, run_f32<Bf16Block>},
    {Tier::avx2, Format::q8, run_f32<Q8Block>},       {Tier::avx2, Format::q4, run_f32<Q4Block>},
    {Tier::avx2, Format::mxfp4, run_f32<Mxfp4Block>},
};

}  // namespace waste::kernels::avx2
