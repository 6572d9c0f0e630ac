#include "kernels/avx512/lanes.h"
#include "kernels/tile_int8.h"

// int8 activations.
namespace waste::kernels::avx512 {
namespace {

__m512i broadcast_quad(const int8_t* codes) {
    int32_t quad;
    __builtin_memcpy(&quad, codes, sizeof quad);
    return _mm512_set1_epi32(quad);
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;
    static constexpr int32_t kOffset = 128;

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_bf16(block + group / 2 * kPanelRows * 2);
    }

    static void unpack_codes(const std::byte* block, std::byte* to) {
        const __m512i flip = _mm512_set1_epi8(-128);
        for (int64_t quad = 0; quad < kBlockCols / 4; ++quad) {
            _mm512_store_si512(to + quad * 64,
                               _mm512_xor_si512(load(block + kQ8ScaleBytes + quad * 64), flip));
        }
    }

    /// vpdpbusd wants the weights unsigned: 128 more each, taken back through the sum of the activations.
    static __m512i dot(const std::byte* block, int64_t group, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kQ8ScaleBytes + group * kGroupCols * kPanelRows;
        const __m512i flip = _mm512_set1_epi8(-128);
        __m512i even = _mm512_set1_epi32(-128 * a_sum);
        __m512i odd = _mm512_setzero_si512();
        for (int64_t quad = 0; quad < 8; quad += 2) {
            const __m512i first = _mm512_xor_si512(load(codes + quad * 64), flip);
            const __m512i second = _mm512_xor_si512(load(codes + quad * 64 + 64), flip);
            even = _mm512_dpbusd_epi32(even, first, broadcast_quad(a + quad * 4));
            odd = _mm512_dpbusd_epi32(odd, second, broadcast_quad(a + quad * 4 + 4));
        }
        return _mm512_add_epi32(even, odd);
    }
};

/// Block::decode maps nibbles in bytes to unsigned codes, kOffset too large each.
template <typename Block>
__m512i dot_nibbles(const std::byte* codes, const int8_t* a, int32_t a_sum) {
    const __m512i nibble = _mm512_set1_epi8(15);
    __m512i low = _mm512_set1_epi32(-Block::kOffset * a_sum);
    __m512i high = _mm512_setzero_si512();
    for (int64_t quad = 0; quad < 4; ++quad) {
        const __m512i bytes = load(codes + quad * 64);
        const __m512i first = Block::decode(_mm512_and_si512(bytes, nibble));
        const __m512i second = Block::decode(_mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble));
        low = _mm512_dpbusd_epi32(low, first, broadcast_quad(a + quad * 4));
        high = _mm512_dpbusd_epi32(high, second, broadcast_quad(a + 16 + quad * 4));
    }
    return _mm512_add_epi32(low, high);
}

/// Unpacks four groups of nibbles into quads.
template <typename Block>
void unpack_nibbles(const std::byte* codes, std::byte* to) {
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int64_t group = 0; group < kBlockGroups; ++group, to += 512) {
        for (int64_t quad = 0; quad < 4; ++quad, codes += 64) {
            const __m512i bytes = load(codes);
            const __m512i low = _mm512_and_si512(bytes, nibble);
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
            _mm512_store_si512(to + quad * 64, Block::decode(low));
            _mm512_store_si512(to + quad * 64 + 256, Block::decode(high));
        }
    }
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr float kScaleFactor = 1.0f;
    static constexpr int32_t kOffset = 8;

    static __m512i decode(__m512i nibbles) { return nibbles; }

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_bf16(block + group * kPanelRows * 2);
    }

    static __m512i dot(const std::byte* block, int64_t group, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kQ4ScaleBytes + group * kNibbleGroupBytes;
        return dot_nibbles<Q4Block>(codes, a, a_sum);
    }

    static void unpack_codes(const std::byte* block, std::byte* to) {
        unpack_nibbles<Q4Block>(block + kQ4ScaleBytes, to);
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled
    static constexpr int32_t kOffset = 12;

    static __m512i decode(__m512i nibbles) {
        const __m512i doubled_plus_12 =
            _mm512_broadcast_i32x4(_mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        return _mm512_shuffle_epi8(doubled_plus_12, nibbles);
    }

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_e8m0(block + group * kPanelRows);
    }

    static __m512i dot(const std::byte* block, int64_t group, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + kMxfp4ScaleBytes + group * kNibbleGroupBytes;
        return dot_nibbles<Mxfp4Block>(codes, a, a_sum);
    }

    static void unpack_codes(const std::byte* block, std::byte* to) {
        unpack_nibbles<Mxfp4Block>(block + kMxfp4ScaleBytes, to);
    }
};

template <typename Block>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        __m512 total = _mm512_setzero_ps();
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            for (int64_t g = 0; g < 4; ++g) {
                const int64_t group = b * x.stride * 4 + g;
                const __m512i dot = Block::dot(block, g, x.codes + group * kGroupCols, x.sums[group]);
                const __m512 activation_scale = _mm512_set1_ps(Block::kScaleFactor * x.scales[group]);
                const __m512 scale = _mm512_mul_ps(Block::scale(block, g), activation_scale);
                total = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot), scale, total);
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

/// 2 panels x 6 tokens: 12 sums of integers, 12 totals, 2 weights and an activation are 27 of 32 registers.
///
/// A group is 96 vpdpbusd; 36 more instructions scale it (convert, multiply, multiply-add for each of 12 vectors)
/// on the same two ports, so 73 % of the vpdpbusd peak is the ceiling. A quad is 2 loads and 6 broadcasts for 12
/// vpdpbusd: 4 cycles of the load ports against 6. Activations as broadcast operands would make 14 loads of
/// them, 7 cycles. 12 sums cover the latency of 5 cycles at two a cycle.
///
/// Measured on Cascade Lake (peak 300 GMAC/s), everything in L1: 203-211; 3 panels x 4 tokens 209, 4 x 3 202,
/// 1 x 12 161; totals in memory between groups 186, and with the registers so won 4 x 6 157, 2 x 8 141.
/// Whole products of 48 tokens: 173-183. There tiles of 36 tokens lose 4-9 %, of 72 or 96 2-3 %; 4 panels a tile
/// gain nothing; without prefetching weights beyond L2 lose 13 %; asking for the next activations too loses 10 %.
template <typename Block>
struct TileKernel : Block {
    static constexpr int kPanels = 2;
    static constexpr int kTokens = 6;

    struct Weights {
        alignas(64) std::byte codes[kBlockCols * kPanelRows];  ///< unsigned: kOffset more than their value
        __m512 scales[kBlockGroups];
    };

    static void unpack(const std::byte* block, Weights& to) {
        Block::unpack_codes(block, to.codes);
        for (int64_t group = 0; group < kBlockGroups; ++group) to.scales[group] = Block::scale(block, group);
    }

    template <int kUsedPanels, int kUsedTokens>
    static void add(const Weights* w, const int8_t* a, const float (*scales)[kBlockGroups],
                    const int32_t (*starts)[kBlockGroups], float (*totals)[kPanels][kPanelRows]) {
        __m512 total[kUsedTokens][kUsedPanels];
        for (int t = 0; t < kUsedTokens; ++t) {
            for (int p = 0; p < kUsedPanels; ++p) total[t][p] = _mm512_load_ps(totals[t][p]);
        }
        for (int64_t group = 0; group < kBlockGroups; ++group) {
            __m512i dot[kUsedTokens][kUsedPanels];
            for (int t = 0; t < kUsedTokens; ++t) {
                for (int p = 0; p < kUsedPanels; ++p) dot[t][p] = _mm512_set1_epi32(starts[t][group]);
            }
#pragma GCC unroll 8
            for (int64_t quad = 0; quad < 8; ++quad) {
                __m512i weights[kUsedPanels];
                for (int p = 0; p < kUsedPanels; ++p) weights[p] = load(w[p].codes + group * 512 + quad * 64);
                for (int t = 0; t < kUsedTokens; ++t) {
                    const __m512i activations = broadcast_quad(a + t * kBlockCols + group * 32 + quad * 4);
                    for (int p = 0; p < kUsedPanels; ++p) {
                        dot[t][p] = _mm512_dpbusd_epi32(dot[t][p], weights[p], activations);
                    }
                }
            }
            for (int t = 0; t < kUsedTokens; ++t) {
                const __m512 scale = _mm512_set1_ps(scales[t][group]);
                for (int p = 0; p < kUsedPanels; ++p) {
                    const __m512 factor = _mm512_mul_ps(w[p].scales[group], scale);
                    total[t][p] = _mm512_fmadd_ps(_mm512_cvtepi32_ps(dot[t][p]), factor, total[t][p]);
                }
            }
        }
        for (int t = 0; t < kUsedTokens; ++t) {
            for (int p = 0; p < kUsedPanels; ++p) _mm512_store_ps(totals[t][p], total[t][p]);
        }
    }
};

template <typename Block>
void run_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
              int64_t y_stride) {
    if (x.tokens == 1) return one_int8<Block>(w, x, panel_begin, panel_end, y);
    multiply_int8<TileKernel<Block>>(w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::avx512, Format::q8, run_int8<Q8Block>},
    {Tier::avx512, Format::q4, run_int8<Q4Block>},
    {Tier::avx512, Format::mxfp4, run_int8<Mxfp4Block>},
};

}  // namespace waste::kernels::avx512
