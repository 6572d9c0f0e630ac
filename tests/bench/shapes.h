// The products of the models that rows are timed at: K3, Kimi-Linear-48B-A3B and the demo model.
#pragma once

#include <string>
#include <vector>

#include "kernels/format.h"
#include "kernels/tier.h"
#include "tests/bench/bench.h"

namespace waste::bench {

struct Shape {
    std::string_view model;
    int64_t rows;
    int64_t cols;
};

/// Attention's projections for q8 and q4, a routed expert's for mxfp4, routers (and for bf16 a projection
/// kept lossless) otherwise. Only one where nobody waits for the variant: the scalar tier, and f32 arithmetic
/// over a format that has integer kernels.
std::vector<Shape> shapes_for(const kernels::MatmulInt8Variant& variant);
std::vector<Shape> shapes_for(const kernels::MatmulF32Variant& variant);

/// family/tier/format/model/rowsxcols/suffix
std::string row_name(std::string_view family, kernels::Tier tier, kernels::Format format, const Shape& shape,
                     std::string_view suffix);

/// The matrices of one shape that the pool holds, taken in turn.
class MatrixWalk {
  public:
    MatrixWalk(const std::byte* pool, kernels::Format format, const Shape& shape)
        : pool_(pool),
          shape_(shape),
          stride_(kernels::matrix_bytes(format, shape.rows, shape.cols)),
          count_(Pool::kBytes / stride_) {}

    /// The matrix `ahead` places after the present one.
    kernels::Panels at(int64_t ahead) const {
        return {pool_ + (turn_ + ahead) % count_ * stride_, shape_.rows, shape_.cols};
    }
    void advance(int64_t by) { turn_ = (turn_ + by) % count_; }

  private:
    const std::byte* pool_;
    Shape shape_;
    int64_t stride_;
    int64_t count_;
    int64_t turn_ = 0;
};

}  // namespace waste::bench
