// Integer products shared by the tiers neon and i8mm. They differ in how a group's dot products come about; a
// tier brings that as a type
//
//   struct Dots {
//       static const int8_t* arrange(const int8_t* codes, int8_t* scratch);   quads as `sum` wants them
//       template <int kTokens>
//       static void sum(const int8_t* arranged, const int8_t* a, int32x4_t (*dot)[kParts]);   one group
//   };
#pragma once

#include "kernels/neon/layouts.h"
#include "kernels/tile_int8.h"

namespace waste::kernels {
namespace {

/// 4 tokens x 4 parts are 16 sums in 32 registers.
template <typename Layout, typename Dots>
struct TileKernel {
    static constexpr int kPanels = 2;
    static constexpr int kTokens = 4;
    static constexpr int64_t kBytes = Layout::kBytes;
    static constexpr float kScaleFactor = Layout::kScaleFactor;
    static constexpr int32_t kOffset = 0;

    struct Weights {
        const int8_t* codes;  ///< in scratch, or in the block where it has them as the kernel wants them
        alignas(64) int8_t scratch[kBlockCols * kPanelRows];
        float32x4_t scales[kBlockGroups][kParts];
    };

    static void unpack(const std::byte* block, Weights& to) {
        to.codes = Dots::arrange(Layout::signed_codes(block, to.scratch), to.scratch);
        for (int64_t group = 0; group < kBlockGroups; ++group) {
            for (int part = 0; part < kParts; ++part)
                to.scales[group][part] = Layout::scale(block, group, part);
        }
    }

    template <int kUsedPanels, int kUsedTokens>
    static void add(const Weights* w, const int8_t* a, const float (*scales)[kBlockGroups],
                    const int32_t (*)[kBlockGroups], float (*totals)[kPanels][kPanelRows]) {
        for (int p = 0; p < kUsedPanels; ++p) {
            for (int64_t group = 0; group < kBlockGroups; ++group) {
                int32x4_t dot[kUsedTokens][kParts];
                Dots::template sum<kUsedTokens>(w[p].codes + group * 512, a + group * kGroupCols, dot);
                for (int t = 0; t < kUsedTokens; ++t) {
                    for (int part = 0; part < kParts; ++part) {
                        float* total = totals[t][p] + part * 4;
                        const float32x4_t factor = vmulq_n_f32(w[p].scales[group][part], scales[t][group]);
                        vst1q_f32(total, vfmaq_f32(vld1q_f32(total), vcvtq_f32_s32(dot[t][part]), factor));
                    }
                }
            }
        }
    }
};

template <typename Layout>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    const int64_t blocks = (w.cols + kBlockCols - 1) / kBlockCols;
    const std::byte* block = w.data + panel_begin * blocks * Layout::kBytes;
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        float32x4_t total[kParts];
        for (float32x4_t& part : total) part = vdupq_n_f32(0.0f);
        for (int64_t b = 0; b < blocks; ++b, block += Layout::kBytes) {
            for (int64_t g = 0; g < kBlockGroups; ++g) {
                const int64_t group = b * x.stride * kBlockGroups + g;
                const float activation_scale = Layout::kScaleFactor * x.scales[group];
                for (int part = 0; part < kParts; ++part) {
                    const int32x4_t dot = Layout::dot(block, g, part, x.codes + group * kGroupCols);
                    const float32x4_t scale = vmulq_n_f32(Layout::scale(block, g, part), activation_scale);
                    total[part] = vfmaq_f32(total[part], vcvtq_f32_s32(dot), scale);
                }
            }
        }
        store_rows(total, w.rows - panel * kPanelRows, y + panel * kPanelRows);
    }
}

template <typename Layout, typename Dots>
void run_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
              int64_t y_stride) {
    if (x.tokens == 1) return one_int8<Layout>(w, x, panel_begin, panel_end, y);
    multiply_int8<TileKernel<Layout, Dots>>(w, x, panel_begin, panel_end, y, y_stride);
}

}  // namespace
}  // namespace waste::kernels
