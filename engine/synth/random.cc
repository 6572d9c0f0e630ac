#include "engine/synth/random.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "container/checksum.h"
#include "kernels/float16.h"

namespace waste::engine {
namespace {

using kernels::Format;
using kernels::kBlockCols;
using kernels::kGroupCols;
using kernels::kPanelRows;

constexpr int64_t kBlockCodes = kPanelRows * kBlockCols;
constexpr size_t kScaleChoices = 256;
constexpr double kScaleSpread = 0.25;  ///< half the width of a scale's variation

// Standard deviations of the codes. Of the sum of two uniform integers in 0..n-1: sqrt((n^2 - 1) / 6).
const double kWideDeviation = std::sqrt((65536.0 * 65536.0 - 1) / 6);
const double kQ8Deviation = std::sqrt((128.0 * 128.0 - 1) / 6);
const double kQ4Deviation = std::sqrt((8.0 * 8.0 - 1) / 6);
// Squares of 0, 0.5, 1, 1.5 with weight 3/16 each, of 2, 3, 4, 6 with 1/16.
const double kMxfp4Deviation = std::sqrt((3 * (0.25 + 1 + 2.25) + 4 + 9 + 16 + 36) / 16);

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;

uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
    return z ^ (z >> 31);
}

/// Two uniform 16-bit integers of a word's half, added and centred.
float wide_code(uint32_t bits) {
    return static_cast<float>(static_cast<int32_t>(bits & 0xffffu) + static_cast<int32_t>(bits >> 16) -
                              65535);
}

void fill_floats(RandomWords& words, Format format, int64_t count, float unit, std::byte* out) {
    const auto put = [&](int64_t i, uint64_t bits) {
        const float value = wide_code(static_cast<uint32_t>(bits)) * unit;
        if (format == Format::f32) {
            std::memcpy(out + 4 * i, &value, sizeof value);
        } else {
            const uint16_t narrow = kernels::f32_to_bf16(value);
            std::memcpy(out + 2 * i, &narrow, sizeof narrow);
        }
    };
    for (int64_t i = 0; i < count; i += 2) {
        const uint64_t word = words.next();
        put(i, word);
        if (i + 1 < count) put(i + 1, word >> 32);
    }
}

/// `make(words)` gives eight bytes of codes at a time.
template <typename Make>
void fill_codes(RandomWords& words, int64_t bytes, std::byte* out, const Make& make) {
    for (int64_t i = 0; i < bytes; i += 8) {
        const uint64_t codes = make(words);
        std::memcpy(out + i, &codes, sizeof codes);
    }
}

/// -127..127 in each byte.
uint64_t q8_codes(RandomWords& words) {
    constexpr uint64_t kSeven = 0x7f7f7f7f7f7f7f7fu;
    constexpr uint64_t kOnes = 0x0101010101010101u;
    const uint64_t sums = (words.next() & kSeven) + (words.next() & kSeven);  // 0..254, no carry
    // s - 127 is s + 129 modulo 256. The top bit is added apart, so that no carry leaves its byte.
    return ((sums & kSeven) + kOnes) ^ (sums & ~kSeven) ^ ~kSeven;
}

/// 1..15 in each nibble, which stands for -7..7.
uint64_t q4_codes(RandomWords& words) {
    constexpr uint64_t kThree = 0x7777777777777777u;
    constexpr uint64_t kOnes = 0x1111111111111111u;
    return (words.next() & kThree) + (words.next() & kThree) + kOnes;
}

uint64_t mxfp4_codes(RandomWords& words) {
    constexpr uint64_t kAllButUpper = 0xbbbbbbbbbbbbbbbbu;
    return words.next() & (words.next() | kAllButUpper);
}

/// Scales around `mean square = deviation^2`, as the format stores them.
std::vector<uint16_t> scale_table(Format format, double deviation) {
    std::vector<uint16_t> out(kScaleChoices);
    if (format == Format::mxfp4) {
        // 2^e and 2^(e + 1) in the proportion that gives the mean square.
        const double wanted = deviation / kMxfp4Deviation;
        const int exponent = static_cast<int>(std::floor(std::log2(wanted)));
        const double ratio = wanted / std::ldexp(1.0, exponent);
        const auto upper = static_cast<size_t>(std::lround((ratio * ratio - 1) / 3 * kScaleChoices));
        for (size_t i = 0; i < kScaleChoices; i++) {
            out[i] = static_cast<uint16_t>(std::clamp(127 + exponent + (i < upper ? 1 : 0), 0, 254));
        }
        return out;
    }
    const double code_deviation = format == Format::q8 ? kQ8Deviation : kQ4Deviation;
    const double mean = deviation / code_deviation / std::sqrt(1 + kScaleSpread * kScaleSpread / 3);
    for (size_t i = 0; i < kScaleChoices; i++) {
        const double place = (static_cast<double>(i) + 0.5) / kScaleChoices * 2 - 1;
        out[i] = kernels::f32_to_bf16(static_cast<float>(mean * (1 + kScaleSpread * place)));
    }
    return out;
}

/// One scale a row and group, then the codes.
template <typename Scale, typename Make>
void fill_scaled(RandomWords& words, const std::vector<uint16_t>& table, int64_t groups, int64_t code_bytes,
                 std::byte* block, const Make& make) {
    for (int64_t i = 0; i < groups * kPanelRows; i += 8) {
        uint64_t choices = words.next();
        for (int64_t j = i; j < i + 8; j++, choices >>= 8) {
            const auto scale = static_cast<Scale>(table[choices & 0xff]);
            std::memcpy(block + j * static_cast<int64_t>(sizeof scale), &scale, sizeof scale);
        }
    }
    fill_codes(words, code_bytes, block + groups * kPanelRows * static_cast<int64_t>(sizeof(Scale)), make);
}

void clear_nibble(std::byte* codes, int64_t row, int64_t col, uint8_t zero) {
    const int64_t k = col % kGroupCols, quad = k / 4;
    std::byte& byte = codes[256 * (col / kGroupCols) + 64 * (quad % 4) + 4 * row + k % 4];
    const bool high = quad >= 4;
    byte = (byte & std::byte{static_cast<uint8_t>(high ? 0x0f : 0xf0)}) |
           std::byte{static_cast<uint8_t>(high ? zero << 4 : zero)};
}

/// The code of one element becomes that of zero; docs/container-format.md section 3 says where it is.
void clear_element(Format format, std::byte* block, int64_t row, int64_t col) {
    switch (format) {
        case Format::f32:
            std::memset(block + 4 * (kPanelRows * col + row), 0, 4);
            return;
        case Format::bf16:
            std::memset(block + 2 * (2 * (kPanelRows * (col / 2) + row) + col % 2), 0, 2);
            return;
        case Format::q8:
            block[64 + 4 * (kPanelRows * (col / 4) + row) + col % 4] = std::byte{0};
            return;
        case Format::q4:
            clear_nibble(block + 128, row, col, 8);
            return;
        case Format::mxfp4:
            clear_nibble(block + 64, row, col, 0);
            return;
    }
}

/// All elements but the first `rows` x `cols` become zero.
void clear_padding(Format format, std::byte* block, int64_t rows, int64_t cols) {
    for (int64_t row = 0; row < kPanelRows; row++) {
        for (int64_t col = row < rows ? cols : 0; col < kBlockCols; col++)
            clear_element(format, block, row, col);
    }
}

}  // namespace

uint64_t RandomWords::next() {
    state_ += kGolden;
    return mix(state_);
}

double RandomWords::uniform() {
    return (static_cast<double>(next() >> 11) + 0.5) * 0x1p-53;
}

double RandomWords::triangular() {
    return static_cast<double>(wide_code(static_cast<uint32_t>(next()))) / kWideDeviation;
}

uint64_t stream_of(uint64_t seed, std::string_view name) {
    return mix(mix(seed + kGolden) ^ container::xxh3_64(name));
}

uint64_t substream(uint64_t stream, int64_t index) {
    return mix(stream + kGolden * (static_cast<uint64_t>(index) + 1));
}

RandomPanels::RandomPanels(Format format, int64_t rows, int64_t cols, double deviation, uint64_t stream)
    : format_(format), rows_(rows), cols_(cols), stream_(stream) {
    if (format == Format::f32 || format == Format::bf16) {
        unit_ = static_cast<float>(deviation / kWideDeviation);
    } else {
        scales_ = scale_table(format, deviation);
    }
}

void RandomPanels::fill_block(RandomWords& words, std::byte* block) const {
    switch (format_) {
        case Format::f32:
        case Format::bf16:
            return fill_floats(words, format_, kBlockCodes, unit_, block);
        case Format::q8:
            return fill_scaled<uint16_t>(words, scales_, 2, kBlockCodes, block, q8_codes);
        case Format::q4:
            return fill_scaled<uint16_t>(words, scales_, 4, kBlockCodes / 2, block, q4_codes);
        case Format::mxfp4:
            return fill_scaled<uint8_t>(words, scales_, 4, kBlockCodes / 2, block, mxfp4_codes);
    }
}

void RandomPanels::fill(int64_t panel, std::byte* out) const {
    RandomWords words(substream(stream_, panel));
    const int64_t block_bytes = kernels::format_info(format_).block_bytes;
    const int64_t row = panel % kernels::panel_count(rows_) * kPanelRows;
    const int64_t rows = std::min(rows_ - row, kPanelRows);
    for (int64_t col = 0; col < cols_; col += kBlockCols, out += block_bytes) {
        fill_block(words, out);
        const int64_t cols = std::min(cols_ - col, kBlockCols);
        if (rows < kPanelRows || cols < kBlockCols) clear_padding(format_, out, rows, cols);
    }
}

void random_row(Format format, int64_t cols, double deviation, uint64_t stream, int64_t row, std::byte* out) {
    RandomWords words(substream(stream, row));
    fill_floats(words, format, cols, static_cast<float>(deviation / kWideDeviation), out);
}

}  // namespace waste::engine
