// Several tokens, integer weights: the part of tile.h's walk that a tier's inner kernel plugs into.
#pragma once

#include "kernels/matmul.h"
#include "kernels/tile.h"

namespace waste::kernels {
namespace {

/// What the inner kernels need of the activations besides their codes: [token][group of a block].
struct TileScales {
    alignas(64) float scale[kTileTokens][kBlockGroups];    ///< kScaleFactor * scale
    alignas(64) int32_t start[kTileTokens][kBlockGroups];  ///< -kOffset * sum: undoes unsigned weights

    template <typename Kernel>
    void load(const float* scales, const int32_t* sums, int64_t tokens) {
        for (int64_t t = 0; t < tokens; ++t, scales += kBlockGroups, sums += kBlockGroups) {
            for (int64_t g = 0; g < kBlockGroups; ++g) {
                scale[t][g] = Kernel::kScaleFactor * scales[g];
                start[t][g] = -Kernel::kOffset * sums[g];
            }
        }
    }
};

/// Adds a block to the totals of `tokens` tokens (2 .. kTokens) through the inner kernel for that number.
template <typename Kernel, int kPanels, int kTokens = Kernel::kTokens>
inline __attribute__((always_inline)) void add_int8(const typename Kernel::Weights* w, const int8_t* codes,
                                                    const TileScales& scales, int64_t first, int64_t tokens,
                                                    TileTotals<Kernel::kPanels>& totals) {
    if constexpr (kTokens > 2) {
        if (tokens < kTokens) {
            add_int8<Kernel, kPanels, kTokens - 1>(w, codes, scales, first, tokens, totals);
            return;
        }
    }
    Kernel::template add<kPanels, kTokens>(w, codes + first * kBlockCols, scales.scale + first,
                                           scales.start + first, totals.at + first);
}

/// One tile of at least 2 tokens times kPanels panels from `panel` on.
template <typename Kernel, int kPanels>
void multiply_tile_int8(const Panels& w, const Int8Tokens& x, int64_t panel, float* y, int64_t y_stride) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const int64_t panel_bytes = blocks * Kernel::kBytes;
    const EvenParts parts(x.tokens, Kernel::kTokens);
    typename Kernel::Weights weights[kPanels];
    TileScales scales;
    TileTotals<Kernel::kPanels> totals;
    totals.clear(x.tokens);
    const std::byte* block = w.data + panel * panel_bytes;
    for (int64_t b = 0; b < blocks; ++b, block += Kernel::kBytes) {
        for (int64_t p = 0; p < kPanels; ++p) Kernel::unpack(block + p * panel_bytes, weights[p]);
        const int64_t vectors = b * x.stride;
        scales.load<Kernel>(x.scales + vectors * kBlockGroups, x.sums + vectors * kBlockGroups, x.tokens);
        for (int64_t part = 0, t = 0; part < parts.count; t += parts.size(part++)) {
            for (int64_t p = 0; p < kPanels; ++p) {
                prefetch_share<Kernel>(block + p * panel_bytes + Kernel::kBytes, part);
            }
            add_int8<Kernel, kPanels>(weights, x.codes + vectors * kBlockCols, scales, t, parts.size(part),
                                      totals);
        }
    }
    totals.store(x.tokens, kPanels, w.rows - panel * kPanelRows, y + panel * kPanelRows, y_stride);
}

/// The product with at least 2 tokens.
template <typename Kernel>
void multiply_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
                   int64_t y_stride) {
    for_each_tile<Kernel>(panel_begin, panel_end, x.tokens,
                          [&](int64_t panel, auto panels, int64_t first, int64_t tokens) {
                              multiply_tile_int8<Kernel, decltype(panels)::kIs>(
                                  w, x.part(first, tokens), panel, y + first * y_stride, y_stride);
                          });
}

}  // namespace
}  // namespace waste::kernels
