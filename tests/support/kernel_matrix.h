// Test matrices in panel layout, random values, buffers that show an overrun, and bit comparison.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <span>
#include <string>
#include <vector>

#include "kernels/format.h"
#include "kernels/matmul.h"
#include "kernels/panel.h"

namespace waste::test {

/// Half a unit in the last place of f32, relative: the rounding error of one operation.
inline constexpr double kRounding = 0x1p-24;

/// Repeatable on every platform, unlike the standard distributions.
class Random {
  public:
    explicit Random(uint32_t seed) : engine_(seed) {}

    uint32_t bits() { return static_cast<uint32_t>(engine_()); }
    uint8_t byte() { return static_cast<uint8_t>(bits() >> 24); }
    /// In [low, high).
    float uniform(float low, float high) {
        return low + (high - low) * static_cast<float>(bits() >> 8) * 0x1p-24f;
    }
    /// Near enough to a normal distribution of this deviation.
    float normal(float deviation);
    std::vector<float> normals(int64_t count, float deviation);

  private:
    std::mt19937 engine_;
};

/// Zeroed memory aligned to 64 bytes, as kernels want their weights.
class AlignedBytes {
  public:
    explicit AlignedBytes(int64_t size);
    std::byte* data() { return data_; }
    const std::byte* data() const { return data_; }

  private:
    std::unique_ptr<std::byte[]> storage_;
    std::byte* data_;
};

/// A matrix in panels and what it decodes to.
struct TestMatrix {
    kernels::Format format;
    int64_t rows;
    int64_t cols;
    AlignedBytes bytes;
    std::vector<float> weights;  ///< [rows][cols]

    kernels::Panels panels() const { return {bytes.data(), rows, cols}; }
    float weight(int64_t row, int64_t col) const { return weights[static_cast<size_t>(row * cols + col)]; }
};

/// Encodes (mxfp4: repacks random codes, `cols` a multiple of 32) a matrix of random weights.
TestMatrix random_matrix(kernels::Format format, int64_t rows, int64_t cols, uint32_t seed);

/// Encodes row-major `weights`; not for mxfp4.
TestMatrix encode_matrix(kernels::Format format, int64_t rows, int64_t cols, std::span<const float> weights);

/// The nearest shape that the format can hold: mxfp4 has whole groups of 32 columns.
int64_t legal_cols(kernels::Format format, int64_t cols);

/// Vectors x [tokens][cols], quantized by the scalar tier, that own their memory; codes start at an odd address.
class QuantizedTokens {
  public:
    QuantizedTokens(std::span<const float> x, int64_t tokens);
    kernels::Int8Tokens view() const {
        return {codes_.data() + 1, scales_.data(), sums_.data(), tokens_, tokens_};
    }

  private:
    int64_t tokens_;
    std::vector<int8_t> codes_;
    std::vector<float> scales_;
    std::vector<int32_t> sums_;
};

/// Floats between two guards; starts 4 bytes past a 16-byte boundary or at any other address `offset` floats
/// in.
class GuardedFloats {
  public:
    explicit GuardedFloats(int64_t count);
    float* data() { return storage_.data() + kGuard; }
    std::span<const float> values() const {
        return std::span<const float>(storage_).subspan(kGuard, storage_.size() - 2 * kGuard);
    }
    /// Whether nothing was written at `values()[index]`.
    bool untouched(int64_t index) const;
    bool guards_intact() const;

  private:
    static constexpr size_t kGuard = 17;
    std::vector<float> storage_;
};

/// Equal bits, where all NaNs count as one.
bool same_bits(float a, float b);
/// Empty when all are equal; otherwise says where the first difference is.
std::string first_difference(std::span<const float> got, std::span<const float> expected);

}  // namespace waste::test
