// Products with many tokens on one thread: bound by multiply-adds, so the limit is the peak of the tier's
// own instructions. The scalar tier has none and is left out.
#include <fmt/format.h>

#include "tests/bench/shapes.h"
#include "tests/support/kernel_matrix.h"

namespace waste::bench {
namespace {

constexpr int64_t kTokenCounts[] = {16, 48, 256};
/// Small products are repeated, so that the clock and the call do not count.
constexpr double kMultiplyAddsACall = 1e7;

constexpr int64_t kLargestRouter = 896;

/// One vector as often as there are tokens: kernels do not look at the values.
std::vector<float> alike_tokens(int64_t tokens, int64_t cols) {
    const std::vector<float> one = test::Random(2).normals(cols, 1.0f);
    std::vector<float> x;
    for (int64_t t = 0; t < tokens; ++t) x.insert(x.end(), one.begin(), one.end());
    return x;
}

/// make_product() gives what multiplies a whole matrix: product(matrix, y).
template <typename MakeProduct>
void add_row(Bench& bench, std::string_view family, kernels::Tier tier, kernels::Format format,
             const Shape& shape, int64_t tokens, double limit, MakeProduct make_product) {
    Row row;
    row.name = row_name(family, tier, format, shape, fmt::format("n{}", tokens));
    row.threads = 1;
    row.work = Work::multiply_adds;
    row.work_a_unit = static_cast<double>(tokens * shape.rows * shape.cols);
    row.units_a_call = 1 + static_cast<int64_t>(kMultiplyAddsACall / row.work_a_unit);
    row.limit = limit;
    row.prepare = [&bench, count = row.units_a_call, format, shape, tokens,
                   make_product]() -> std::function<void()> {
        MatrixWalk walk(bench.pool().weights(format), format, shape);
        std::vector<float> y(static_cast<size_t>(tokens * shape.rows));
        return [count, walk, y, product = make_product()]() mutable {
            for (int64_t i = 0; i < count; ++i) product(walk.at(i), y.data());
            walk.advance(count);
        };
    };
    bench.add(std::move(row));
}

void add_int8(Bench& bench, const kernels::MatmulInt8Variant& variant, const Shape& shape, int64_t tokens) {
    add_row(bench, "product_int8", variant.tier, variant.format, shape, tokens,
            bench.peaks(variant.tier).int8, [variant, shape, tokens] {
                return [variant, x = test::QuantizedTokens(alike_tokens(tokens, shape.cols), tokens)](
                           const kernels::Panels& w, float* y) {
                    variant.run(w, x.view(), 0, kernels::panel_count(w.rows), y, w.rows);
                };
            });
}

void add_f32(Bench& bench, const kernels::MatmulF32Variant& variant, const Shape& shape, int64_t tokens) {
    add_row(bench, "product_f32", variant.tier, variant.format, shape, tokens, bench.peaks(variant.tier).f32,
            [variant, shape, tokens] {
                return [variant, tokens, x = alike_tokens(tokens, shape.cols)](const kernels::Panels& w,
                                                                               float* y) {
                    variant.run(w, x.data(), w.cols, tokens, 0, kernels::panel_count(w.rows), y, w.rows);
                };
            });
}

template <typename Variant>
void add_variants(Bench& bench, std::span<const Variant> variants,
                  void (*add)(Bench&, const Variant&, const Shape&, int64_t)) {
    for (const Variant& variant : variants) {
        if (variant.tier == kernels::Tier::scalar || !kernels::tier_supported(variant.tier)) continue;
        for (const Shape& shape : shapes_for(variant)) {
            // Whole projections are kept in bf16 on request only, and take a second with 256 tokens.
            if (variant.format == kernels::Format::bf16 && shape.rows > kLargestRouter) continue;
            for (const int64_t tokens : kTokenCounts) add(bench, variant, shape, tokens);
        }
    }
}

}  // namespace

void add_product_rows(Bench& bench) {
    add_variants(bench, kernels::matmul_int8_variants(), add_int8);
    add_variants(bench, kernels::matmul_f32_variants(), add_f32);
}

}  // namespace waste::bench
