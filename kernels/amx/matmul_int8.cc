#include "kernels/avx512/lanes.h"
#include "kernels/tile_int8.h"

// Tile registers: C [16 tokens][16 rows] int32 += A [16 tokens][32 columns] * B [8 column quads][16 rows][4], which
// is one group of a panel as panel.h lays it out. Both sides are signed, so nothing needs an offset.
//
// Every group has its own scales, so each product of tiles leaves the tile registers at once and is scaled by
// AVX-512: 3 instructions for 16 outputs, 48 for the 8,192 multiply-adds of a tile product. Two vector units take
// 24 cycles for them and the tile unit 16 for the product, so this is bound by scaling, near 340 multiply-adds a
// cycle.
namespace waste::kernels::amx {
namespace {

using avx512::load;
using avx512::widen_bf16;
using avx512::widen_e8m0;

constexpr int64_t kTileRows = 16;

/// The operand of ldtilecfg.
struct alignas(64) TileConfig {
    uint8_t palette = 1;
    uint8_t start_row = 0;
    uint8_t reserved[14] = {};
    uint16_t row_bytes[16] = {};
    uint8_t rows[16] = {};
};
static_assert(sizeof(TileConfig) == 64);

/// Registers 0-3 are C of the groups of a block, 4 is A, 5 is B.
void configure_tiles() {
    TileConfig config;
    for (int i = 0; i < 6; ++i) {
        config.row_bytes[i] = i == 4 ? kGroupCols : 64;
        config.rows[i] = i == 5 ? kGroupCols / 4 : kTileRows;
    }
    _tile_loadconfig(&config);
}

/// What tile instructions read and write is memory the compiler does not connect with them.
void memory_barrier() {
    asm volatile("" ::: "memory");
}

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_bf16(block + group / 2 * kPanelRows * 2);
    }
    static const std::byte* codes(const std::byte* block, std::byte*) { return block + kQ8ScaleBytes; }
};

/// Block::decode maps nibbles in bytes to signed codes.
template <typename Block>
const std::byte* unpack_nibbles(const std::byte* codes, std::byte* scratch) {
    const __m512i nibble = _mm512_set1_epi8(15);
    for (int64_t group = 0; group < kBlockGroups; ++group) {
        std::byte* to = scratch + group * kGroupCols * kPanelRows;
        for (int64_t quad = 0; quad < 4; ++quad, codes += 64) {
            const __m512i bytes = load(codes);
            const __m512i low = _mm512_and_si512(bytes, nibble);
            const __m512i high = _mm512_and_si512(_mm512_srli_epi16(bytes, 4), nibble);
            _mm512_store_si512(to + quad * 64, Block::decode(low));
            _mm512_store_si512(to + quad * 64 + 256, Block::decode(high));
        }
    }
    return scratch;
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr float kScaleFactor = 1.0f;

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_bf16(block + group * kPanelRows * 2);
    }
    static __m512i decode(__m512i nibbles) { return _mm512_sub_epi8(nibbles, _mm512_set1_epi8(8)); }
    static const std::byte* codes(const std::byte* block, std::byte* scratch) {
        return unpack_nibbles<Q4Block>(block + kQ4ScaleBytes, scratch);
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled

    static __m512 scale(const std::byte* block, int64_t group) {
        return widen_e8m0(block + group * kPanelRows);
    }
    static __m512i decode(__m512i nibbles) {
        const __m512i doubled =
            _mm512_broadcast_i32x4(_mm_setr_epi8(0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12));
        return _mm512_shuffle_epi8(doubled, nibbles);
    }
    static const std::byte* codes(const std::byte* block, std::byte* scratch) {
        return unpack_nibbles<Mxfp4Block>(block + kMxfp4ScaleBytes, scratch);
    }
};

/// The dot products of a block: [group][token][row].
struct BlockDots {
    alignas(64) int32_t at[kBlockGroups][kTileRows][kPanelRows];
};

/// `codes` of a panel's block, `a` of 16 tokens. The register numbers are part of the instructions.
void multiply_groups(const std::byte* codes, const int8_t* a, BlockDots& dots) {
    constexpr int64_t kGroupBytes = kGroupCols * kPanelRows;
    memory_barrier();
    _tile_zero(0);
    _tile_loadd(4, a, kBlockCols);
    _tile_loadd(5, codes, 64);
    _tile_dpbssd(0, 4, 5);
    _tile_stored(0, dots.at[0], 64);
    _tile_zero(1);
    _tile_loadd(4, a + kGroupCols, kBlockCols);
    _tile_loadd(5, codes + kGroupBytes, 64);
    _tile_dpbssd(1, 4, 5);
    _tile_stored(1, dots.at[1], 64);
    _tile_zero(2);
    _tile_loadd(4, a + 2 * kGroupCols, kBlockCols);
    _tile_loadd(5, codes + 2 * kGroupBytes, 64);
    _tile_dpbssd(2, 4, 5);
    _tile_stored(2, dots.at[2], 64);
    _tile_zero(3);
    _tile_loadd(4, a + 3 * kGroupCols, kBlockCols);
    _tile_loadd(5, codes + 3 * kGroupBytes, 64);
    _tile_dpbssd(3, 4, 5);
    _tile_stored(3, dots.at[3], 64);
    memory_barrier();
}

template <typename Block>
struct TileKernel : Block {
    static constexpr int kPanels = 2;
    static constexpr int kTokens = kTileRows;
    static constexpr int32_t kOffset = 0;

    struct Weights {
        const std::byte* codes;  ///< in scratch, or in the block where they are stored as tiles want them
        alignas(64) std::byte scratch[kBlockCols * kPanelRows];
        __m512 scales[kBlockGroups];
    };

    static void unpack(const std::byte* block, Weights& to) {
        to.codes = Block::codes(block, to.scratch);
        for (int64_t group = 0; group < kBlockGroups; ++group) to.scales[group] = Block::scale(block, group);
    }

    /// Scales the dot products of tokens `skip` .. 15 and adds them to their totals.
    static void add_scaled(const Weights& w, const BlockDots& dots, const float (*scales)[kBlockGroups],
                           int64_t skip, float (*totals)[kPanels][kPanelRows], int64_t panel) {
        for (int64_t t = skip; t < kTileRows; ++t) {
            __m512 total = _mm512_load_ps(totals[t][panel]);
            for (int64_t group = 0; group < kBlockGroups; ++group) {
                const __m512 dot = _mm512_cvtepi32_ps(_mm512_load_si512(dots.at[group][t]));
                const __m512 factor = _mm512_mul_ps(w.scales[group], _mm512_set1_ps(scales[t][group]));
                total = _mm512_fmadd_ps(dot, factor, total);
            }
            _mm512_store_ps(totals[t][panel], total);
        }
    }
};

/// One tile of at least 16 tokens times kPanels panels from `panel` on. Where the tokens are no multiple of 16,
/// the last 16 overlap those before, which are left out when scaling.
template <typename Kernel, int kPanels>
void multiply_tile(const Panels& w, const Int8Tokens& x, int64_t panel, float* y, int64_t y_stride) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const int64_t panel_bytes = blocks * Kernel::kBytes;
    typename Kernel::Weights weights[kPanels];
    TileScales scales;
    TileTotals<Kernel::kPanels> totals;
    BlockDots dots;
    totals.clear(x.tokens);
    const std::byte* block = w.data + panel * panel_bytes;
    for (int64_t b = 0; b < blocks; ++b, block += Kernel::kBytes) {
        for (int64_t p = 0; p < kPanels; ++p) Kernel::unpack(block + p * panel_bytes, weights[p]);
        const int64_t vectors = b * x.stride;
        scales.load<Kernel>(x.scales + vectors * kBlockGroups, x.sums + vectors * kBlockGroups, x.tokens);
        for (int64_t t = 0; t < x.tokens; t += kTileRows) {
            const int64_t first = t + kTileRows <= x.tokens ? t : x.tokens - kTileRows;
            for (int64_t p = 0; p < kPanels; ++p) {
                prefetch_share<Kernel>(block + p * panel_bytes + Kernel::kBytes, t / kTileRows);
                multiply_groups(weights[p].codes, x.codes + (vectors + first) * kBlockCols, dots);
                Kernel::add_scaled(weights[p], dots, scales.scale + first, t - first, totals.at + first, p);
            }
        }
    }
    totals.store(x.tokens, kPanels, w.rows - panel * kPanelRows, y + panel * kPanelRows, y_stride);
}

/// `few` is the same product for fewer tokens than a tile has rows.
template <typename Block>
void run_int8(MatmulInt8 few, const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end,
              float* y, int64_t y_stride) {
    if (x.tokens < kTileRows) return few(w, x, panel_begin, panel_end, y, y_stride);
    using Kernel = TileKernel<Block>;
    configure_tiles();
    for_each_tile<Kernel>(panel_begin, panel_end, x.tokens,
                          [&](int64_t panel, auto panels, int64_t first, int64_t tokens) {
                              multiply_tile<Kernel, decltype(panels)::kIs>(w, x.part(first, tokens), panel,
                                                                           y + first * y_stride, y_stride);
                          });
    _tile_release();
}

/// The rows of the avx512 table are in the order of this one.
template <typename Block, int kRow>
void run_row(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
             int64_t y_stride) {
    run_int8<Block>(avx512::kMatmulInt8[kRow].run, w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::amx, Format::q8, run_row<Q8Block, 0>},
    {Tier::amx, Format::q4, run_row<Q4Block, 1>},
    {Tier::amx, Format::mxfp4, run_row<Mxfp4Block, 2>},
};

}  // namespace waste::kernels::amx
