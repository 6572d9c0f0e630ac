// The walk over a product with several tokens, shared by the tiers. Only tier files include it: everything is
// in an unnamed namespace, so each tier compiles its own copy and no weak symbol leaves it.
//
//   for every kPanels panels, for every tile of tokens, for every block of 128 columns:
//       unpack the panels' blocks once into scratch memory,
//       then let the tier's inner kernel add the block to the tile's totals, kTokens tokens at a time.
//
// Why in this order: an unpacked block serves every token of the tile, so unpacking costs a few percent;
// scratch, the tile's activations of one block and its totals stay in L1; the panels' bytes come from memory
// once, for the tiles after the first from L2.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/panel.h"

namespace waste::kernels {
namespace {

/// Most tokens that share an unpacked block.
inline constexpr int64_t kTileTokens = 48;

template <int kValue>
struct Constant {
    static constexpr int kIs = kValue;
};

/// `total` cut into the fewest parts of at most `most`, as even as they go: no part is a tiny rest. A division
/// takes dozens of cycles, as much as an inner kernel for few tokens; hence once, and not per part.
struct EvenParts {
    int64_t count;
    int64_t small;
    int64_t larger;  ///< so many parts, the first ones, have one more than `small`

    EvenParts(int64_t total, int64_t most)
        : count((total + most - 1) / most),
          small(count > 0 ? total / count : 0),
          larger(total - small * count) {}
    int64_t size(int64_t part) const { return part < larger ? small + 1 : small; }
};

/// Sums of a tile: [token][panel][row].
template <int kPanels>
struct TileTotals {
    alignas(64) float at[kTileTokens][kPanels][kPanelRows];

    void clear(int64_t tokens) { __builtin_memset(at, 0, static_cast<size_t>(tokens) * sizeof at[0]); }

    /// Writes the rows of the first `panels` panels as far as they exist: `rows` from the first one on.
    void store(int64_t tokens, int64_t panels, int64_t rows, float* y, int64_t y_stride) const {
        for (int64_t t = 0; t < tokens; ++t) {
            for (int64_t p = 0; p < panels; ++p) {
                float* to = y + t * y_stride + p * kPanelRows;
                const int64_t left = rows - p * kPanelRows;
                if (left >= kPanelRows) {
                    __builtin_memcpy(to, at[t][p], sizeof at[t][p]);
                } else {
                    for (int64_t row = 0; row < left; ++row) to[row] = at[t][p][row];
                }
            }
        }
    }
};

/// Asks for a share of the next block, so that unpacking it does not wait for memory: in one piece the requests
/// would fill the line buffers and hold up the inner kernel instead.
template <typename Kernel>
inline void prefetch_share(const std::byte* block, int64_t part) {
    constexpr int64_t kShares = kTileTokens / Kernel::kTokens;
    constexpr int64_t kLines = (Kernel::kBytes / 64 + kShares - 1) / kShares;
    for (int64_t line = 0; line < kLines; ++line) __builtin_prefetch(block + (part * kLines + line) * 64);
}

/// Calls tile(panel, panels, first token, tokens) for all of a product, `panels` being kPanels or, at the end, 1
/// as a constant. Tiles are whole multiples of the inner kernel's tokens as far as they can be.
template <typename Kernel, typename Tile>
inline void for_each_tile(int64_t panel_begin, int64_t panel_end, int64_t tokens, const Tile& tile) {
    const EvenParts tiles((tokens + Kernel::kTokens - 1) / Kernel::kTokens, kTileTokens / Kernel::kTokens);
    const auto all_tokens = [&](int64_t panel, auto panels) {
        for (int64_t i = 0, t = 0, count = 0; i < tiles.count; ++i, t += count) {
            count = tiles.size(i) * Kernel::kTokens;
            if (count > tokens - t) count = tokens - t;
            tile(panel, panels, t, count);
        }
    };
    int64_t panel = panel_begin;
    for (; panel + Kernel::kPanels <= panel_end; panel += Kernel::kPanels) {
        all_tokens(panel, Constant<Kernel::kPanels>());
    }
    for (; panel < panel_end; ++panel) all_tokens(panel, Constant<1>());
}

}  // namespace
}  // namespace waste::kernels
