// Integer products with 256-bit vectors, shared by the tiers avx2 and avxvnni. They differ in how they add up
// products of bytes; a tier brings that as a type
//
//   struct Sum {
//       static constexpr int kTokens;                 tokens of an inner kernel: what the registers hold
//       static constexpr int64_t safe_quads(largest)  so many quads fit one Sum, weights being 0 .. largest
//       explicit Sum(int32_t start);
//       void add(__m256i weights, __m256i activations);
//       __m256i total(int32_t start) const;           the same start: added at whichever end is cheaper
//   };
#pragma once

#include "kernels/avx2/lanes.h"
#include "kernels/tile_int8.h"

namespace waste::kernels {
namespace {

inline __m256i broadcast_quad(const int8_t* codes) {
    int32_t quad;
    __builtin_memcpy(&quad, codes, sizeof quad);
    return _mm256_set1_epi32(quad);
}

/// Dot products of one group: unsigned weights [quad][16 rows][4], at most kLargest each, with kTokens tokens.
template <typename Sum, int32_t kLargest, int kTokens>
inline void sum_group(const std::byte* weights, const int8_t* a, const int32_t (*starts)[kBlockGroups],
                      __m256i (*dot)[2]) {
    constexpr int64_t kQuads = Sum::safe_quads(kLargest);
    for (int64_t first = 0; first < 8; first += kQuads) {
        Sum sum[kTokens][2];
        for (int t = 0; t < kTokens; ++t) sum[t][0] = sum[t][1] = Sum(first == 0 ? starts[t][0] : 0);
#pragma GCC unroll 8
        for (int64_t quad = first; quad < first + kQuads; ++quad) {
            const __m256i low = load(weights + quad * 64);
            const __m256i high = load(weights + quad * 64 + 32);
            for (int t = 0; t < kTokens; ++t) {
                const __m256i activations = broadcast_quad(a + t * kBlockCols + quad * 4);
                sum[t][0].add(low, activations);
                sum[t][1].add(high, activations);
            }
        }
        for (int t = 0; t < kTokens; ++t) {
            for (int half = 0; half < 2; ++half) {
                const __m256i total = sum[t][half].total(first == 0 ? starts[t][0] : 0);
                dot[t][half] = first == 0 ? total : _mm256_add_epi32(dot[t][half], total);
            }
        }
    }
}

struct Q4Layout {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr int64_t kScaleBytes = kQ4ScaleBytes;
    static constexpr float kScaleFactor = 1.0f;
    static constexpr int32_t kOffset = 8;
    static constexpr int32_t kLargest = 15;

    static __m256 scale(const std::byte* block, int64_t group, int half) {
        return widen_bf16(block + (group * kPanelRows + half * 8) * 2);
    }
    static __m256i decode(__m256i nibbles) { return nibbles; }
};

struct Mxfp4Layout {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr int64_t kScaleBytes = kMxfp4ScaleBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled
    static constexpr int32_t kOffset = 12;
    static constexpr int32_t kLargest = 24;

    static __m256 scale(const std::byte* block, int64_t group, int half) {
        return widen_e8m0(block + group * kPanelRows + half * 8);
    }
    static __m256i decode(__m256i nibbles) {
        const __m256i doubled_plus_12 = _mm256_broadcastsi128_si256(
            _mm_setr_epi8(12, 13, 14, 15, 16, 18, 20, 24, 12, 11, 10, 9, 8, 6, 4, 0));
        return _mm256_shuffle_epi8(doubled_plus_12, nibbles);
    }
};

/// A block of nibbles: in vector i of a group, quad i is in the low and quad i + 4 in the high halves. The
/// layout's decode maps nibbles to unsigned codes, kOffset too large each.
template <typename Layout, typename Sum>
struct NibbleBlock : Layout {
    static constexpr int kTokens = Sum::kTokens;

    static const std::byte* unpack_codes(const std::byte* block, std::byte* scratch) {
        std::byte* to = scratch;
        const __m256i nibble = _mm256_set1_epi8(15);
        const std::byte* codes = block + Layout::kScaleBytes;
        for (int64_t group = 0; group < kBlockGroups; ++group, to += 512, codes += kNibbleGroupBytes) {
            for (int64_t i = 0; i < kNibbleGroupBytes; i += 32) {
                const __m256i bytes = load(codes + i);
                const __m256i low = _mm256_and_si256(bytes, nibble);
                const __m256i high = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble);
                _mm256_store_si256(reinterpret_cast<__m256i*>(to + i), Layout::decode(low));
                _mm256_store_si256(reinterpret_cast<__m256i*>(to + i + 256), Layout::decode(high));
            }
        }
        return scratch;
    }

    template <int kUsedTokens>
    static void dots(const std::byte* codes, int64_t group, const int8_t* a,
                     const int32_t (*starts)[kBlockGroups], __m256i (*dot)[2]) {
        sum_group<Sum, Layout::kLargest, kUsedTokens>(codes + group * 512, a, starts, dot);
    }

    /// For one token, straight from the block.
    static __m256i dot(const std::byte* block, int64_t group, int half, const int8_t* a, int32_t a_sum) {
        const std::byte* codes = block + Layout::kScaleBytes + group * kNibbleGroupBytes + half * 32;
        const __m256i nibble = _mm256_set1_epi8(15);
        Sum low(-Layout::kOffset * a_sum);
        Sum high(0);
        for (int64_t quad = 0; quad < 4; ++quad) {
            const __m256i bytes = load(codes + quad * 64);
            low.add(Layout::decode(_mm256_and_si256(bytes, nibble)), broadcast_quad(a + quad * 4));
            high.add(Layout::decode(_mm256_and_si256(_mm256_srli_epi16(bytes, 4), nibble)),
                     broadcast_quad(a + 16 + quad * 4));
        }
        return _mm256_add_epi32(low.total(-Layout::kOffset * a_sum), high.total(0));
    }
};

struct Q8Layout {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m256 scale(const std::byte* block, int64_t group, int half) {
        return widen_bf16(block + (group / 2 * kPanelRows + half * 8) * 2);
    }
};

template <typename Block>
struct TileKernel : Block {
    static constexpr int kPanels = 2;

    struct Weights {
        const std::byte* codes;  ///< in scratch, or in the block where it has them as the kernel wants them
        alignas(64) std::byte scratch[kBlockCols * kPanelRows];
        __m256 scales[kBlockGroups][2];
    };

    static void unpack(const std::byte* block, Weights& to) {
        to.codes = Block::unpack_codes(block, to.scratch);
        for (int64_t group = 0; group < kBlockGroups; ++group) {
            for (int half = 0; half < 2; ++half) to.scales[group][half] = Block::scale(block, group, half);
        }
    }

    template <int kUsedPanels, int kUsedTokens>
    static void add(const Weights* w, const int8_t* a, const float (*scales)[kBlockGroups],
                    const int32_t (*starts)[kBlockGroups], float (*totals)[kPanels][kPanelRows]) {
        for (int p = 0; p < kUsedPanels; ++p) {
            for (int64_t group = 0; group < kBlockGroups; ++group) {
                __m256i dot[kUsedTokens][2];
                const auto group_starts = reinterpret_cast<const int32_t(*)[kBlockGroups]>(*starts + group);
                Block::template dots<kUsedTokens>(w[p].codes, group, a + group * kGroupCols, group_starts,
                                                  dot);
                for (int t = 0; t < kUsedTokens; ++t) {
                    const __m256 scale = _mm256_set1_ps(scales[t][group]);
                    for (int half = 0; half < 2; ++half) {
                        float* total = totals[t][p] + half * 8;
                        const __m256 factor = _mm256_mul_ps(w[p].scales[group][half], scale);
                        const __m256 sum =
                            _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot[t][half]), factor, _mm256_load_ps(total));
                        _mm256_store_ps(total, sum);
                    }
                }
            }
        }
    }
};

template <typename Block>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const std::byte* block = w.data + panel_begin * blocks * Block::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        __m256 total[2] = {_mm256_setzero_ps(), _mm256_setzero_ps()};
        for (int64_t b = 0; b < blocks; ++b, block += Block::kBytes) {
            for (int64_t g = 0; g < kBlockGroups; ++g) {
                const int64_t group = b * x.stride * kBlockGroups + g;
                const __m256 activation_scale = _mm256_set1_ps(Block::kScaleFactor * x.scales[group]);
                for (int half = 0; half < 2; ++half) {
                    const __m256i dot =
                        Block::dot(block, g, half, x.codes + group * kGroupCols, x.sums[group]);
                    const __m256 scale = _mm256_mul_ps(Block::scale(block, g, half), activation_scale);
                    total[half] = _mm256_fmadd_ps(_mm256_cvtepi32_ps(dot), scale, total[half]);
                }
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Block>
void run_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
              int64_t y_stride) {
    if (x.tokens == 1) return one_int8<Block>(w, x, panel_begin, panel_end, y);
    multiply_int8<TileKernel<Block>>(w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace
}  // namespace waste::kernels
