#include "kernels/mxfp4.h"

#include <bit>
#include <cstring>

#include "kernels/variants.h"

namespace waste::kernels {
namespace {

constexpr float kE2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                             -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};

/// Bytes of one group of a row as released, and byte distance between the quads that share a vector.
constexpr int64_t kPackedGroupBytes = kGroupCols / 2;
constexpr int64_t kQuadBytes = 2;

float e8m0_to_f32(uint8_t exponent) {
    return std::bit_cast<float>(exponent == 0 ? 0x00400000u : uint32_t{exponent} << 23);
}

/// Two bytes of packed codes to four bytes of one code each, in column order.
uint32_t spread_quad(const uint8_t* packed) {
    const uint32_t both = uint32_t{packed[0]} | uint32_t{packed[1]} << 16;
    return (both | both << 4) & 0x0f0f0f0fu;
}

int64_t block_offset(int64_t group) {
    return group / 4 * kMxfp4BlockBytes;
}

/// Where the scale of `row` for `group` stands in the panel, and its four bytes of vector 0.
int64_t scale_offset(int64_t row, int64_t group) {
    return block_offset(group) + group % 4 * kPanelRows + row;
}
int64_t codes_offset(int64_t row, int64_t group) {
    return block_offset(group) + kMxfp4ScaleBytes + group % 4 * kNibbleGroupBytes + row * 4;
}

}  // namespace

void mxfp4_unpack(const uint8_t* packed, const uint8_t* scale, int64_t rows, int64_t cols, float* out) {
    const int64_t groups = rows * (cols / kGroupCols);
    for (int64_t group = 0; group < groups; ++group) {
        const float factor = e8m0_to_f32(scale[group]);
        for (int64_t i = 0; i < kPackedGroupBytes; ++i) {
            const uint8_t both = packed[group * kPackedGroupBytes + i];
            out[group * kGroupCols + 2 * i] = kE2m1[both & 15] * factor;
            out[group * kGroupCols + 2 * i + 1] = kE2m1[both >> 4] * factor;
        }
    }
}

void mxfp4_repack_panel(const uint8_t* packed, const uint8_t* scale, int64_t rows, int64_t cols,
                        std::byte* panel) {
    const int64_t groups = cols / kGroupCols;
    const int64_t blocks = (cols + kBlockCols - 1) / kBlockCols;
    std::memset(panel, 0, static_cast<size_t>(blocks * kMxfp4BlockBytes));
    for (int64_t row = 0; row < rows; ++row) {
        for (int64_t group = 0; group < groups; ++group) {
            panel[scale_offset(row, group)] = std::byte{scale[row * groups + group]};
            const uint8_t* source = packed + (row * groups + group) * kPackedGroupBytes;
            std::byte* codes = panel + codes_offset(row, group);
            for (int64_t quad = 0; quad < 4; ++quad, source += kQuadBytes, codes += 64) {
                const uint32_t both = spread_quad(source) | spread_quad(source + 4 * kQuadBytes) << 4;
                std::memcpy(codes, &both, sizeof both);
            }
        }
    }
}

}  // namespace waste::kernels
