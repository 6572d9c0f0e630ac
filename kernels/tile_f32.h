// Several tokens, weights decoded to f32: the part of tile.h's walk that a tier's inner kernel plugs into.
#pragma once

#include "kernels/matmul.h"
#include "kernels/tile.h"

namespace waste::kernels {
namespace {

/// Adds a block to the totals of `tokens` tokens (2 .. kTokens) through the inner kernel for that number.
template <typename Kernel, int kPanels, int kTokens = Kernel::kTokens>
inline __attribute__((always_inline)) void add_f32(const float* const* w, const float* x, int64_t x_stride,
                                                   int64_t tokens,
                                                   float (*totals)[Kernel::kPanels][kPanelRows]) {
    if constexpr (kTokens > 2) {
        if (tokens < kTokens) {
            add_f32<Kernel, kPanels, kTokens - 1>(w, x, x_stride, tokens, totals);
            return;
        }
    }
    Kernel::template add<kPanels, kTokens>(w, x, x_stride, totals);
}

/// The columns from `begin` on, padded with zeros to a block.
struct TailColumns {
    float at[kTileTokens * kBlockCols];

    void load(const float* x, int64_t x_stride, int64_t tokens, int64_t begin, int64_t cols) {
        float* to = at;
        for (int64_t t = 0; t < tokens; ++t, x += x_stride, to += kBlockCols) {
            for (int64_t c = 0; c < kBlockCols; ++c) to[c] = begin + c < cols ? x[begin + c] : 0.0f;
        }
    }
};

/// One tile of at least 2 tokens times kPanels panels from `panel` on.
template <typename Kernel, int kPanels>
void multiply_tile_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel,
                       float* y, int64_t y_stride) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const int64_t panel_bytes = blocks * Kernel::kBytes;
    const EvenParts parts(tokens, Kernel::kTokens);
    alignas(64) float scratch[kPanels][kBlockCols * kPanelRows];
    TailColumns tail;
    TileTotals<Kernel::kPanels> totals;
    totals.clear(tokens);
    const std::byte* block = w.data + panel * panel_bytes;
    for (int64_t b = 0; b < blocks; ++b, block += Kernel::kBytes) {
        const float* weights[kPanels];
        for (int64_t p = 0; p < kPanels; ++p)
            weights[p] = Kernel::decode(block + p * panel_bytes, scratch[p]);
        const float* columns = x + b * kBlockCols;
        int64_t stride = x_stride;
        if ((b + 1) * kBlockCols > w.cols) {
            tail.load(x, x_stride, tokens, b * kBlockCols, w.cols);
            columns = tail.at;
            stride = kBlockCols;
        }
        for (int64_t part = 0, t = 0; part < parts.count; t += parts.size(part++)) {
            for (int64_t p = 0; p < kPanels; ++p) {
                prefetch_share<Kernel>(block + p * panel_bytes + Kernel::kBytes, part);
            }
            add_f32<Kernel, kPanels>(weights, columns + t * stride, stride, parts.size(part), totals.at + t);
        }
    }
    totals.store(tokens, kPanels, w.rows - panel * kPanelRows, y + panel * kPanelRows, y_stride);
}

/// The product with at least 2 tokens.
template <typename Kernel>
void multiply_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel_begin,
                  int64_t panel_end, float* y, int64_t y_stride) {
    for_each_tile<Kernel>(
        panel_begin, panel_end, tokens, [&](int64_t panel, auto panels, int64_t first, int64_t count) {
            multiply_tile_f32<Kernel, decltype(panels)::kIs>(w, x + first * x_stride, x_stride, count, panel,
                                                             y + first * y_stride, y_stride);
        });
}

}  // namespace
}  // namespace waste::kernels
