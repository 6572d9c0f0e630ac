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

/// A vector about to be multiplied. The quantized form is made once, when the first product needs it.
struct Input {
    const float* values = nullptr;
    int64_t cols = 0;
    bool quantized = false;
    // Room for the quantized form of most_cols columns; see kernels::Int8Vector.
    int64_t most_cols = 0;
    int8_t* codes = nullptr;
    float* scales = nullptr;
    int32_t* sums = nullptr;

    void set(const float* x, int64_t n) {
        if (n > most_cols) std::abort();  // a workspace too small for its model: our fault, never the input's
        values = x;
        cols = n;
        quantized = false;
    }
};

/// y [w.rows] = w x
struct Product {
    const Matrix* w;
    Input* x;
    float* y;
};

/// Used by one thread at a time.
class Executor {
  public:
    Executor(Compute compute, kernels::Tier tier, int threads);

    Compute compute() const { return compute_; }
    kernels::Tier tier() const { return kernels_.tier; }
    const kernels::KernelSet& kernels() const { return kernels_; }
    ThreadPool& pool() { return pool_; }

    /// All products in one parallel region; they may share inputs and must not share outputs.
    void multiply(std::span<const Product> products);

  private:
    bool uses_int8(kernels::Format format) const {
        return compute_ == Compute::int8 && kernels_.matvec_int8[static_cast<size_t>(format)] != nullptr;
    }

    Compute compute_;
    kernels::KernelSet kernels_;
    ThreadPool pool_;
    std::vector<int64_t> first_task_;  ///< of each product; grows to the largest call, then stays
};

}  // namespace waste::engine
