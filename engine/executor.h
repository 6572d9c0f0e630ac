// Matrix products over the thread pool: what a layer calls instead of touching kernels and threads itself.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <span>
#include <vector>

#include "engine/parallel.h"
#include "engine/weights.h"
#include "kernels/kernel_set.h"

namespace waste::engine {

/// f32: weights are decoded and multiplied with f32 activations: the bridge to the reference.
/// int8: activations are quantized per group of 32 wherever the weights have an integer kernel.
enum class Compute { f32, int8 };

/// Vectors about to be multiplied. The quantized form is made once, when the first product needs it.
struct Input {
    const float* values = nullptr;  ///< [tokens][stride], of which cols count
    int64_t cols = 0;
    int64_t stride = 0;
    int64_t tokens = 0;
    bool quantized = false;
    // Room for the quantized form of `capacity` padded elements; see kernels::Int8Tokens.
    int64_t capacity = 0;
    int8_t* codes = nullptr;
    float* scales = nullptr;
    int32_t* sums = nullptr;

    void set(const float* x, int64_t columns, int64_t row_stride, int64_t rows) {
        // A workspace too small for its model: our fault, never the input's.
        if (kernels::padded_cols(columns) * rows > capacity) std::abort();
        values = x;
        cols = columns;
        stride = row_stride;
        tokens = rows;
        quantized = false;
    }
    kernels::Int8Tokens int8() const { return {codes, scales, sums, tokens, tokens}; }
};

/// y [tokens][y_stride], of which w.rows are written, = x w^T
struct Product {
    const Matrix* w;
    Input* x;
    float* y;
    int64_t y_stride;
};

/// Used by one thread at a time.
class Executor {
  public:
    Executor(Compute compute, kernels::Tier tier, int threads, const CpuBinding& binding);

    Compute compute() const { return compute_; }
    kernels::Tier tier() const { return kernels_.tier; }
    const kernels::KernelSet& kernels() const { return kernels_; }
    ThreadPool& pool() { return pool_; }
    int threads() const { return pool_.size(); }

    bool uses_int8(kernels::Format format) const {
        return compute_ == Compute::int8 && kernels_.matmul_int8[static_cast<size_t>(format)] != nullptr;
    }

    /// All products in one parallel region; they may share inputs and must not share outputs.
    void multiply(std::span<const Product> products);

    /// Makes the quantized form of each input that has none yet.
    void quantize(std::span<Input* const> inputs);

    // For tasks, on the calling thread alone:
    /// The quantized form of one vector of x.
    void quantize_token(const Input& x, int64_t token) const;
    /// y = x w^T for panels [panel_begin, panel_end) and tokens [first, first + count) of x; y stands at token 0.
    void multiply_part(const Matrix& w, const Input& x, int64_t panel_begin, int64_t panel_end, int64_t first,
                       int64_t count, float* y, int64_t y_stride) const;

    /// Calls f(token) for each, on all threads where there are several.
    template <typename F>
    void each_token(int64_t tokens, const F& f) {
        if (tokens == 1) {
            f(0);
        } else {
            pool_.run(tokens, f);
        }
    }

  private:
    Compute compute_;
    kernels::KernelSet kernels_;
    ThreadPool pool_;
    // Grow to the largest call, then stay.
    std::vector<int64_t> first_task_;  ///< of each product
    std::vector<Input*> to_quantize_, unquantized_;
    std::vector<int64_t> first_vector_;  ///< of each unquantized input
};

}  // namespace waste::engine
