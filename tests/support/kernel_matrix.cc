#include "tests/support/kernel_matrix.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>

#include "kernels/kernel_set.h"
#include "kernels/mxfp4.h"
#include "kernels/quantize.h"

namespace waste::test {

using kernels::Format;
using kernels::kPanelRows;

namespace {

constexpr float kGuardValue = -1234.5f;

TestMatrix empty_matrix(Format format, int64_t rows, int64_t cols) {
    return {format, rows, cols, AlignedBytes(kernels::matrix_bytes(format, rows, cols)),
            std::vector<float>(static_cast<size_t>(rows * cols))};
}

std::byte* panel_of(TestMatrix& matrix, int64_t row) {
    return matrix.bytes.data() + row / kPanelRows * kernels::panel_bytes(matrix.format, matrix.cols);
}

void decode_weights(TestMatrix& matrix) {
    std::vector<float> panel(static_cast<size_t>(kPanelRows * matrix.cols));
    for (int64_t row = 0; row < matrix.rows; row += kPanelRows) {
        kernels::format_info(matrix.format).decode(panel_of(matrix, row), matrix.cols, panel.data());
        const int64_t present = std::min(kPanelRows, matrix.rows - row);
        std::copy_n(panel.begin(), present * matrix.cols, matrix.weights.begin() + row * matrix.cols);
    }
}

TestMatrix random_mxfp4(int64_t rows, int64_t cols, Random& random) {
    std::vector<uint8_t> packed(static_cast<size_t>(rows * cols / 2));
    std::vector<uint8_t> scale(static_cast<size_t>(rows * cols / 32));
    for (uint8_t& byte : packed) byte = random.byte();
    for (uint8_t& byte : scale) byte = static_cast<uint8_t>(119 + random.bits() % 8);
    if (!scale.empty()) scale[0] = 0;
    TestMatrix matrix = empty_matrix(Format::mxfp4, rows, cols);
    for (int64_t row = 0; row < rows; row += kPanelRows) {
        kernels::mxfp4_repack_panel(packed.data() + row * cols / 2, scale.data() + row * cols / 32,
                                    std::min(kPanelRows, rows - row), cols, panel_of(matrix, row));
    }
    kernels::mxfp4_unpack(packed.data(), scale.data(), rows, cols, matrix.weights.data());
    return matrix;
}

}  // namespace

float Random::normal(float deviation) {
    float sum = 0.0f;
    for (int i = 0; i < 12; ++i) sum += uniform(-0.5f, 0.5f);
    return sum * deviation;
}

std::vector<float> Random::normals(int64_t count, float deviation) {
    std::vector<float> values(static_cast<size_t>(count));
    for (float& value : values) value = normal(deviation);
    return values;
}

AlignedBytes::AlignedBytes(int64_t size) : storage_(new std::byte[static_cast<size_t>(size) + 64]{}) {
    void* start = storage_.get();
    size_t space = static_cast<size_t>(size) + 64;
    data_ = static_cast<std::byte*>(std::align(64, static_cast<size_t>(size), start, space));
}

TestMatrix encode_matrix(Format format, int64_t rows, int64_t cols, std::span<const float> weights) {
    TestMatrix matrix = empty_matrix(format, rows, cols);
    std::vector<float> panel(static_cast<size_t>(kPanelRows * cols));
    for (int64_t row = 0; row < rows; row += kPanelRows) {
        std::fill(panel.begin(), panel.end(), 0.0f);
        std::copy_n(weights.begin() + row * cols, std::min(kPanelRows, rows - row) * cols, panel.begin());
        kernels::format_info(format).encode(panel.data(), cols, panel_of(matrix, row));
    }
    decode_weights(matrix);
    return matrix;
}

TestMatrix random_matrix(Format format, int64_t rows, int64_t cols, uint32_t seed) {
    Random random(seed);
    if (format == Format::mxfp4) return random_mxfp4(rows, cols, random);
    return encode_matrix(format, rows, cols, random.normals(rows * cols, 0.05f));
}

int64_t legal_cols(Format format, int64_t cols) {
    return format == Format::mxfp4 ? (cols + 31) / 32 * 32 : cols;
}

QuantizedTokens::QuantizedTokens(std::span<const float> x, int64_t tokens) : tokens_(tokens) {
    const int64_t cols = static_cast<int64_t>(x.size()) / tokens;
    const auto padded = static_cast<size_t>(kernels::padded_cols(cols) * tokens);
    codes_.resize(padded + 1);
    scales_.resize(padded / kernels::kGroupCols);
    sums_.resize(padded / kernels::kGroupCols);
    const kernels::QuantizeKernels& quantize = *kernels::kernels_for(kernels::Tier::scalar).quantize;
    for (int64_t t = 0; t < tokens; ++t) {
        quantize.int8(x.data() + t * cols, cols, tokens, codes_.data() + 1 + t * kernels::kBlockCols,
                      scales_.data() + t * kernels::kBlockGroups, sums_.data() + t * kernels::kBlockGroups);
    }
}

GuardedFloats::GuardedFloats(int64_t count)
    : storage_(static_cast<size_t>(count) + 2 * kGuard, kGuardValue) {}

bool GuardedFloats::guards_intact() const {
    const auto is_guard = [](float value) { return value == kGuardValue; };
    return std::all_of(storage_.begin(), storage_.begin() + kGuard, is_guard) &&
           std::all_of(storage_.end() - kGuard, storage_.end(), is_guard);
}

bool GuardedFloats::untouched(int64_t index) const {
    return values()[static_cast<size_t>(index)] == kGuardValue;
}

bool same_bits(float a, float b) {
    if (std::isnan(a) && std::isnan(b)) return true;
    return std::bit_cast<uint32_t>(a) == std::bit_cast<uint32_t>(b);
}

std::string first_difference(std::span<const float> got, std::span<const float> expected) {
    if (got.size() != expected.size()) return "sizes differ";
    for (size_t i = 0; i < got.size(); ++i) {
        if (!same_bits(got[i], expected[i])) {
            return "at " + std::to_string(i) + ": got " + std::to_string(got[i]) + ", expected " +
                   std::to_string(expected[i]);
        }
    }
    return "";
}

}  // namespace waste::test
