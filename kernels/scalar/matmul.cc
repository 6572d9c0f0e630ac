#include "kernels/matmul.h"

#include "kernels/variants.h"

// The readable definition. A block type answers for one block of a panel: weight(row, col) as f32; and for
// the formats with integer kernels, its factors code(row, col) and scale(row, group of 32).
namespace waste::kernels::scalar {
namespace {

float from_bf16(const std::byte* at) {
    uint16_t bits;
    __builtin_memcpy(&bits, at, sizeof bits);
    return __builtin_bit_cast(float, uint32_t{bits} << 16);
}

struct F32Block {
    static constexpr int64_t kBytes = kF32BlockBytes;
    const std::byte* data;

    float weight(int64_t row, int64_t col) const {
        float value;
        __builtin_memcpy(&value, data + (col * kPanelRows + row) * 4, sizeof value);
        return value;
    }
};

struct Bf16Block {
    static constexpr int64_t kBytes = kBf16BlockBytes;
    const std::byte* data;

    float weight(int64_t row, int64_t col) const {
        return from_bf16(data + ((col / 2 * kPanelRows + row) * 2 + col % 2) * 2);
    }
};

struct Q8Block {
    static constexpr int64_t kBytes = kQ8BlockBytes;
    static constexpr float kScaleFactor = 1.0f;
    const std::byte* data;

    int32_t code(int64_t row, int64_t col) const {
        const std::byte* codes = data + kQ8ScaleBytes;
        return static_cast<int8_t>(codes[(col / 4 * kPanelRows + row) * 4 + col % 4]);
    }
    float scale(int64_t row, int64_t group) const {
        return from_bf16(data + (group / 2 * kPanelRows + row) * 2);
    }
    float weight(int64_t row, int64_t col) const {
        return static_cast<float>(code(row, col)) * scale(row, col / kGroupCols);
    }
};

/// Quads 0-3 of a group are in the low nibbles, quads 4-7 in the high ones.
int32_t nibble(const std::byte* codes, int64_t row, int64_t col) {
    const int64_t quad = col % kGroupCols / 4;
    const std::byte* vector = codes + col / kGroupCols * kNibbleGroupBytes + quad % 4 * 64;
    const int32_t both = static_cast<uint8_t>(vector[row * 4 + col % 4]);
    return quad < 4 ? both & 15 : both >> 4;
}

struct Q4Block {
    static constexpr int64_t kBytes = kQ4BlockBytes;
    static constexpr float kScaleFactor = 1.0f;
    const std::byte* data;

    int32_t code(int64_t row, int64_t col) const { return nibble(data + kQ4ScaleBytes, row, col) - 8; }
    float scale(int64_t row, int64_t group) const { return from_bf16(data + (group * kPanelRows + row) * 2); }
    float weight(int64_t row, int64_t col) const {
        return static_cast<float>(code(row, col)) * scale(row, col / kGroupCols);
    }
};

struct Mxfp4Block {
    static constexpr int64_t kBytes = kMxfp4BlockBytes;
    static constexpr float kScaleFactor = 0.5f;  // because the codes are doubled
    const std::byte* data;

    int32_t code(int64_t row, int64_t col) const {
        constexpr int8_t kDoubled[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};
        return kDoubled[nibble(data + kMxfp4ScaleBytes, row, col)];
    }
    float scale(int64_t row, int64_t group) const {
        const uint32_t exponent = static_cast<uint8_t>(data[group * kPanelRows + row]);
        return __builtin_bit_cast(float, exponent == 0 ? 0x00400000u : exponent << 23);
    }
    float weight(int64_t row, int64_t col) const {
        return static_cast<float>(code(row, col)) * (kScaleFactor * scale(row, col / kGroupCols));
    }
};

int64_t blocks_of(const Panels& w) {
    return (w.cols + kBlockCols - 1) / kBlockCols;
}

template <typename Block>
float row_f32(const std::byte* panel, int64_t row, const float* x, int64_t cols) {
    float total = 0.0f;
    for (int64_t begin = 0; begin < cols; begin += kBlockCols) {
        const Block block{panel + begin / kBlockCols * Block::kBytes};
        const int64_t count = cols - begin < kBlockCols ? cols - begin : kBlockCols;
        float chain[2] = {};
        for (int64_t c = 0; c < count; ++c) {
            chain[c % 2] = __builtin_fmaf(block.weight(row, c), x[begin + c], chain[c % 2]);
        }
        total += chain[0] + chain[1];
    }
    return total;
}

template <typename Block>
float row_int8(const std::byte* panel, int64_t row, const Int8Tokens& x, int64_t blocks) {
    float total = 0.0f;
    for (int64_t group = 0; group < blocks * 4; ++group) {
        const Block block{panel + group / 4 * Block::kBytes};
        const int8_t* a = x.codes + group / 4 * x.stride * kBlockCols + group % 4 * kGroupCols;
        int32_t dot = 0;
        for (int64_t c = 0; c < kGroupCols; ++c) dot += block.code(row, group % 4 * kGroupCols + c) * a[c];
        const float scale = block.scale(row, group % 4) *
                            (Block::kScaleFactor * x.scales[group / 4 * x.stride * 4 + group % 4]);
        total = __builtin_fmaf(static_cast<float>(dot), scale, total);
    }
    return total;
}

template <typename Block>
void one_f32(const Panels& w, const float* x, int64_t panel_begin, int64_t panel_end, float* y) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        const std::byte* data = w.data + panel * blocks_of(w) * Block::kBytes;
        for (int64_t row = 0; row < kPanelRows && panel * kPanelRows + row < w.rows; ++row) {
            y[panel * kPanelRows + row] = row_f32<Block>(data, row, x, w.cols);
        }
    }
}

template <typename Block>
void one_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y) {
    for (int64_t panel = panel_begin; panel < panel_end; ++panel) {
        const std::byte* data = w.data + panel * blocks_of(w) * Block::kBytes;
        for (int64_t row = 0; row < kPanelRows && panel * kPanelRows + row < w.rows; ++row) {
            y[panel * kPanelRows + row] = row_int8<Block>(data, row, x, blocks_of(w));
        }
    }
}

template <typename Block>
void run_f32(const Panels& w, const float* x, int64_t x_stride, int64_t tokens, int64_t panel_begin,
             int64_t panel_end, float* y, int64_t y_stride) {
    for (int64_t t = 0; t < tokens; ++t) {
        one_f32<Block>(w, x + t * x_stride, panel_begin, panel_end, y + t * y_stride);
    }
}

template <typename Block>
void run_int8(const Panels& w, const Int8Tokens& x, int64_t panel_begin, int64_t panel_end, float* y,
              int64_t y_stride) {
    for (int64_t t = 0; t < x.tokens; ++t) {
        one_int8<Block>(w, x.part(t, 1), panel_begin, panel_end, y + t * y_stride);
    }
}

}  // namespace

const MatmulF32Variant kMatmulF32[] = {
    {Tier::scalar, Format::f32, run_f32<F32Block>},     {Tier::scalar, Format::bf16, run_f32<Bf16Block>},
    {Tier::scalar, Format::q8, run_f32<Q8Block>},       {Tier::scalar, Format::q4, run_f32<Q4Block>},
    {Tier::scalar, Format::mxfp4, run_f32<Mxfp4Block>},
};

const MatmulInt8Variant kMatmulInt8[] = {
    {Tier::scalar, Format::q8, run_int8<Q8Block>},
    {Tier::scalar, Format::q4, run_int8<Q4Block>},
    {Tier::scalar, Format::mxfp4, run_int8<Mxfp4Block>},
};

}  // namespace waste::kernels::scalar
