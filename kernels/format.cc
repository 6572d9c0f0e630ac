#include "kernels/format.h"

#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>

#include "kernels/float16.h"
#include "kernels/variants.h"

namespace waste::kernels {
namespace {

constexpr int64_t kQ8GroupCols = 64;
constexpr uint16_t kBf16NaN = 0x7fc0;

// Byte offsets inside a block.

int64_t f32_offset(int64_t row, int64_t col) {
    return (col * kPanelRows + row) * 4;
}
int64_t bf16_offset(int64_t row, int64_t col) {
    return ((col / 2 * kPanelRows + row) * 2 + col % 2) * 2;
}
int64_t q8_offset(int64_t row, int64_t col) {
    return kQ8ScaleBytes + (col / 4 * kPanelRows + row) * 4 + col % 4;
}
int64_t bf16_scale_offset(int64_t row, int64_t group) {
    return (group * kPanelRows + row) * 2;
}

void store_bf16(uint16_t bits, std::byte* at) {
    std::memcpy(at, &bits, sizeof bits);
}

float load_bf16(const std::byte* at) {
    uint16_t bits;
    std::memcpy(&bits, at, sizeof bits);
    return bf16_to_f32(bits);
}

float e8m0_to_f32(std::byte at) {
    const auto exponent = static_cast<uint32_t>(at);
    return std::bit_cast<float>(exponent == 0 ? 0x00400000u : exponent << 23);
}

/// Quads 0-3 of a group are in the low nibbles, quads 4-7 in the high ones.
uint32_t nibble_at(const std::byte* codes, int64_t row, int64_t col) {
    const int64_t quad = col % kGroupCols / 4;
    const std::byte* vector = codes + col / kGroupCols * kNibbleGroupBytes + quad % 4 * 64;
    const auto both = static_cast<uint32_t>(vector[row * 4 + col % 4]);
    return quad < 4 ? both & 15u : both >> 4;
}

/// Calls `visit(block, row, column in the block, index in row-major [16][cols])` for every weight of a panel.
template <typename Byte, typename Visit>
void for_each_weight(Byte* panel, int64_t cols, int64_t block_bytes, const Visit& visit) {
    for (int64_t row = 0; row < kPanelRows; ++row) {
        for (int64_t col = 0; col < cols; ++col) {
            visit(panel + col / kBlockCols * block_bytes, row, col % kBlockCols, row * cols + col);
        }
    }
}

void clear(std::byte* panel, int64_t cols, int64_t block_bytes) {
    std::memset(panel, 0, static_cast<size_t>(block_count(cols) * block_bytes));
}

// f32 and bf16

void encode_f32(const float* rows, int64_t cols, std::byte* panel) {
    clear(panel, cols, kF32BlockBytes);
    for_each_weight(panel, cols, kF32BlockBytes, [&](std::byte* block, int64_t row, int64_t col, int64_t i) {
        std::memcpy(block + f32_offset(row, col), rows + i, sizeof(float));
    });
}

void decode_f32(const std::byte* panel, int64_t cols, float* rows) {
    for_each_weight(panel, cols, kF32BlockBytes,
                    [&](const std::byte* block, int64_t row, int64_t col, int64_t i) {
                        std::memcpy(rows + i, block + f32_offset(row, col), sizeof(float));
                    });
}

void encode_bf16(const float* rows, int64_t cols, std::byte* panel) {
    clear(panel, cols, kBf16BlockBytes);
    for_each_weight(panel, cols, kBf16BlockBytes, [&](std::byte* block, int64_t row, int64_t col, int64_t i) {
        store_bf16(f32_to_bf16(rows[i]), block + bf16_offset(row, col));
    });
}

void decode_bf16(const std::byte* panel, int64_t cols, float* rows) {
    for_each_weight(panel, cols, kBf16BlockBytes,
                    [&](const std::byte* block, int64_t row, int64_t col, int64_t i) {
                        rows[i] = load_bf16(block + bf16_offset(row, col));
                    });
}

// q8 and q4: groups of weights, column by column; the 16 rows lie side by side, so that the compiler can take
// them as lanes.

using Lanes = std::array<float, kPanelRows>;

using Q8Group = std::array<Lanes, kQ8GroupCols>;
using Q4Group = std::array<Lanes, kGroupCols>;

/// The columns of the panel's rows from `begin` on, zero past `cols`.
template <typename Group>
void gather_group(const float* rows, int64_t cols, int64_t begin, Group& group) {
    for (Lanes& column : group) {
        for (int64_t row = 0; row < kPanelRows; ++row) {
            column[static_cast<size_t>(row)] = begin < cols ? rows[row * cols + begin] : 0.0f;
        }
        ++begin;
    }
}

/// Largest magnitude a row; NaN where the row has a NaN or an Inf, which then shows in the scale.
template <typename Group>
Lanes largest_magnitudes(const Group& group) {
    std::array<uint32_t, kPanelRows> largest{};
    for (const Lanes& column : group) {
        for (size_t row = 0; row < kPanelRows; ++row) {
            const uint32_t magnitude = std::bit_cast<uint32_t>(column[row]) & 0x7fffffffu;
            largest[row] = magnitude > largest[row] ? magnitude : largest[row];
        }
    }
    Lanes result;
    for (size_t row = 0; row < kPanelRows; ++row) {
        const bool finite = largest[row] < 0x7f800000u;
        result[row] = finite ? std::bit_cast<float>(largest[row]) : std::numeric_limits<float>::quiet_NaN();
    }
    return result;
}

/// Rounds to the nearest code in [low, high], ties to even; any code for NaN and for values beyond 2^22,
/// which no scale below leads to. Adding 1.5 * 2^23 pushes the fraction out; the limits are integers because
/// compilers make lanes of integer minima but keep branches for those of floats.
int32_t nearest_code(float value, int32_t low, int32_t high) {
    constexpr float kShift = 0x1.8p23f;
    const auto code =
        static_cast<int32_t>(std::bit_cast<uint32_t>(value + kShift) - std::bit_cast<uint32_t>(kShift));
    const int32_t at_least = code > low ? code : low;
    return at_least < high ? at_least : high;
}

/// The code of a weight once its scale is fixed. A scale of NaN says alone that the group is damaged.
int32_t final_code(float weight, uint16_t scale_bits, int32_t low, int32_t high) {
    const float scale = bf16_to_f32(scale_bits);
    return scale == 0.0f || std::isnan(scale) ? 0 : nearest_code(weight / scale, low, high);
}

void encode_q8_group(const float* rows, int64_t cols, int64_t begin, std::byte* block) {
    Q8Group group;
    gather_group(rows, cols, begin, group);
    const Lanes largest = largest_magnitudes(group);
    const int64_t first = begin % kBlockCols;
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const auto lane = static_cast<size_t>(row);
        const uint16_t bits = f32_to_bf16(largest[lane] / 127.0f);
        store_bf16(bits, block + bf16_scale_offset(row, first / kQ8GroupCols));
        for (int64_t c = 0; c < kQ8GroupCols; ++c) {
            const int32_t code = final_code(group[static_cast<size_t>(c)][lane], bits, -127, 127);
            block[q8_offset(row, first + c)] = static_cast<std::byte>(static_cast<int8_t>(code));
        }
    }
}

void encode_q8(const float* rows, int64_t cols, std::byte* panel) {
    for (int64_t begin = 0; begin < block_count(cols) * kBlockCols; begin += kQ8GroupCols) {
        encode_q8_group(rows, cols, begin, panel + begin / kBlockCols * kQ8BlockBytes);
    }
}

void decode_q8(const std::byte* panel, int64_t cols, float* rows) {
    for_each_weight(panel, cols, kQ8BlockBytes,
                    [&](const std::byte* block, int64_t row, int64_t col, int64_t i) {
                        const auto code = static_cast<int8_t>(block[q8_offset(row, col)]);
                        rows[i] = code * load_bf16(block + bf16_scale_offset(row, col / kQ8GroupCols));
                    });
}

Lanes nearest_q4_codes(const Lanes& column, const Lanes& inverse) {
    Lanes codes;
    for (size_t row = 0; row < kPanelRows; ++row) {
        codes[row] = static_cast<float>(nearest_code(column[row] * inverse[row], -8, 7));
    }
    return codes;
}

/// Sums over a group's codes c for the inverse scales `inverse`: t.c and c.c.
struct CodeSums {
    Lanes product{};
    Lanes square{};
};

CodeSums sum_codes(const Q4Group& t, const Lanes& inverse) {
    CodeSums sums;
    for (const Lanes& column : t) {
        const Lanes codes = nearest_q4_codes(column, inverse);
        for (size_t row = 0; row < kPanelRows; ++row) {
            sums.product[row] += column[row] * codes[row];
            sums.square[row] += codes[row] * codes[row];
        }
    }
    return sums;
}

/// The least-squares scale of the best codes found. For fixed codes the best scale is t.c / c.c, and it
/// leaves |t|^2 - (t.c)^2 / c.c. The codes tried are those where the largest weight (t is scaled to make it
/// 1) falls on 6 to 9, in either sign, for the range of codes is lopsided. Measured on normal, uniform and
/// heavy-tailed weights, this grid is within 0.01 % of the energy that a search over all scales leaves.
Lanes search_scale(const Q4Group& t) {
    Lanes best_gain{};
    Lanes scale{};
    Lanes inverse;
    for (int step = 0; step <= 24; ++step) {
        for (const float sign : {1.0f, -1.0f}) {
            inverse.fill(sign * (6.0f + 0.125f * static_cast<float>(step)));
            const CodeSums sums = sum_codes(t, inverse);
            for (size_t row = 0; row < kPanelRows; ++row) {
                const float fitted = sums.product[row] / sums.square[row];
                const float gain = sums.product[row] * fitted;
                scale[row] = gain > best_gain[row] ? fitted : scale[row];
                best_gain[row] = gain > best_gain[row] ? gain : best_gain[row];
            }
        }
    }
    return scale;
}

/// Squared error of the group under these scales; zero scales stand for zero codes.
Lanes group_error(const Q4Group& t, const Lanes& scale) {
    Lanes inverse;
    for (size_t row = 0; row < kPanelRows; ++row)
        inverse[row] = scale[row] != 0.0f ? 1.0f / scale[row] : 0.0f;
    Lanes error{};
    for (const Lanes& column : t) {
        const Lanes codes = nearest_q4_codes(column, inverse);
        for (size_t row = 0; row < kPanelRows; ++row) {
            const float difference = column[row] - codes[row] * scale[row];
            error[row] += difference * difference;
        }
    }
    return error;
}

using ScaleBits = std::array<uint16_t, kPanelRows>;

/// Of the bf16 values around largest * scale, the one with the least error once codes are rounded with it.
ScaleBits round_scale(const Q4Group& t, const Lanes& scale, const Lanes& largest) {
    ScaleBits best{};
    Lanes best_error;
    best_error.fill(std::numeric_limits<float>::infinity());
    for (const int neighbour : {0, -1, 1, -2, 2}) {
        ScaleBits bits;
        Lanes relative;
        for (size_t row = 0; row < kPanelRows; ++row) {
            const int nearest = f32_to_bf16(scale[row] * largest[row]);
            const bool steps_past_zero = (nearest & 0x7fff) + neighbour < 0;
            bits[row] = static_cast<uint16_t>(steps_past_zero ? nearest : nearest + neighbour);
            relative[row] = bf16_to_f32(bits[row]) / largest[row];
        }
        const Lanes error = group_error(t, relative);
        for (size_t row = 0; row < kPanelRows; ++row) {
            if (error[row] < best_error[row]) {
                best_error[row] = error[row];
                best[row] = bits[row];
            }
        }
    }
    return best;
}

/// The scales of a group: zero for a group of zeros, NaN for one that is not finite.
ScaleBits choose_q4_scales(const Q4Group& group) {
    const Lanes largest = largest_magnitudes(group);
    Q4Group t;
    for (size_t c = 0; c < kGroupCols; ++c) {
        for (size_t row = 0; row < kPanelRows; ++row) {
            t[c][row] = largest[row] > 0.0f ? group[c][row] / largest[row] : 0.0f;
        }
    }
    ScaleBits bits = round_scale(t, search_scale(t), largest);
    for (size_t row = 0; row < kPanelRows; ++row) {
        if (largest[row] == 0.0f) bits[row] = 0;
        if (std::isnan(largest[row])) bits[row] = kBf16NaN;
    }
    return bits;
}

void encode_q4_group(const float* rows, int64_t cols, int64_t begin, std::byte* block) {
    Q4Group group;
    gather_group(rows, cols, begin, group);
    const ScaleBits bits = choose_q4_scales(group);
    const int64_t index = begin % kBlockCols / kGroupCols;
    std::byte* codes = block + kQ4ScaleBytes + index * kNibbleGroupBytes;
    for (int64_t row = 0; row < kPanelRows; ++row) {
        const auto lane = static_cast<size_t>(row);
        store_bf16(bits[lane], block + bf16_scale_offset(row, index));
        const auto stored = [&](int64_t col) {
            return static_cast<uint32_t>(
                final_code(group[static_cast<size_t>(col)][lane], bits[lane], -8, 7) + 8);
        };
        for (int64_t col = 0; col < kGroupCols / 2; ++col) {
            codes[col / 4 * 64 + row * 4 + col % 4] = std::byte(stored(col) | stored(col + 16) << 4);
        }
    }
}

void encode_q4(const float* rows, int64_t cols, std::byte* panel) {
    for (int64_t begin = 0; begin < block_count(cols) * kBlockCols; begin += kGroupCols) {
        encode_q4_group(rows, cols, begin, panel + begin / kBlockCols * kQ4BlockBytes);
    }
}

void decode_q4(const std::byte* panel, int64_t cols, float* rows) {
    for_each_weight(panel, cols, kQ4BlockBytes,
                    [&](const std::byte* block, int64_t row, int64_t col, int64_t i) {
                        const auto stored = static_cast<int32_t>(nibble_at(block + kQ4ScaleBytes, row, col));
                        const float scale = load_bf16(block + bf16_scale_offset(row, col / kGroupCols));
                        rows[i] = static_cast<float>(stored - 8) * scale;
                    });
}

void decode_mxfp4(const std::byte* panel, int64_t cols, float* rows) {
    constexpr float kE2m1[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
    for_each_weight(panel, cols, kMxfp4BlockBytes,
                    [&](const std::byte* block, int64_t row, int64_t col, int64_t i) {
                        const uint32_t code = nibble_at(block + kMxfp4ScaleBytes, row, col);
                        const float value = code < 8 ? kE2m1[code] : -kE2m1[code - 8];
                        rows[i] = value * e8m0_to_f32(block[col / kGroupCols * kPanelRows + row]);
                    });
}

constexpr std::array<FormatInfo, kFormatCount> kFormats{{
    {Format::f32, "f32", kF32BlockBytes, false, encode_f32, decode_f32},
    {Format::bf16, "bf16", kBf16BlockBytes, false, encode_bf16, decode_bf16},
    {Format::q8, "q8", kQ8BlockBytes, true, encode_q8, decode_q8},
    {Format::q4, "q4", kQ4BlockBytes, true, encode_q4, decode_q4},
    {Format::mxfp4, "mxfp4", kMxfp4BlockBytes, true, nullptr, decode_mxfp4},
}};

}  // namespace

const FormatInfo& format_info(Format format) {
    return kFormats[static_cast<size_t>(format)];
}

std::span<const FormatInfo> all_formats() {
    return kFormats;
}

std::optional<Format> format_from_name(std::string_view name) {
    for (const FormatInfo& info : kFormats) {
        if (info.name == name) return info.format;
    }
    return std::nullopt;
}

int64_t panel_bytes(Format format, int64_t cols) {
    return block_count(cols) * format_info(format).block_bytes;
}

int64_t matrix_bytes(Format format, int64_t rows, int64_t cols) {
    int64_t bytes = 0;
    const bool overflows = __builtin_mul_overflow(panel_count(rows), panel_bytes(format, cols), &bytes);
    return overflows ? std::numeric_limits<int64_t>::max() : bytes;
}

}  // namespace waste::kernels
