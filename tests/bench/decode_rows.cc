// Products with one token: every weight byte is used once, and the memory's read rate is the limit.
#include <fmt/format.h>

#include <algorithm>
#include <memory>

#include "tests/bench/shapes.h"
#include "tests/support/kernel_matrix.h"

namespace waste::bench {
namespace {

/// Threads meet only after this much, so that the meeting does not count at the small shapes.
constexpr int64_t kBytesACall = int64_t{16} << 20;

/// One call: `count` matrices, each member of the team on its share of the panels. product(matrix, begin,
/// end, y) computes a range of panels.
template <typename Product>
std::function<void()> make_call(Bench& bench, const Row& row, kernels::Format format, const Shape& shape,
                                Product product) {
    const int64_t count = row.units_a_call;
    Team& team = bench.team(row.threads);
    MatrixWalk walk(bench.pool().weights(format), format, shape);
    std::vector<float> y(static_cast<size_t>(shape.rows));
    return [&team, count, product, walk, y]() mutable {
        team.run([&](int member) {
            for (int64_t i = 0; i < count; ++i) {
                const kernels::Panels w = walk.at(i);
                const int64_t panels = kernels::panel_count(w.rows);
                product(w, panels * member / team.size(), panels * (member + 1) / team.size(), y.data());
            }
        });
        walk.advance(count);
    };
}

/// make_product(cols) gives the product with a vector of its own.
template <typename MakeProduct>
void add_row(Bench& bench, std::string_view family, kernels::Tier tier, kernels::Format format,
             const Shape& shape, int threads, MakeProduct make_product) {
    const int64_t bytes = kernels::matrix_bytes(format, shape.rows, shape.cols);
    Row row;
    row.name = row_name(family, tier, format, shape, fmt::format("t{}", threads));
    row.threads = threads;
    row.units_a_call = std::max(int64_t{1}, kBytesACall / bytes);
    row.work = Work::bytes;
    row.work_a_unit = static_cast<double>(bytes);
    row.limit = bench.memory(threads).read;
    row.prepare = [&bench, row, format, shape, make_product] {
        return make_call(bench, row, format, shape, make_product(shape.cols));
    };
    bench.add(std::move(row));
}

void add_int8(Bench& bench, const kernels::MatmulInt8Variant& variant, const Shape& shape, int threads) {
    add_row(bench, "decode_int8", variant.tier, variant.format, shape, threads, [variant](int64_t cols) {
        auto x = std::make_shared<test::QuantizedTokens>(test::Random(2).normals(cols, 1.0f), 1);
        return [variant, x](const kernels::Panels& w, int64_t begin, int64_t end, float* y) {
            variant.run(w, x->view(), begin, end, y, w.rows);
        };
    });
}

void add_f32(Bench& bench, const kernels::MatmulF32Variant& variant, const Shape& shape, int threads) {
    add_row(bench, "decode_f32", variant.tier, variant.format, shape, threads, [variant](int64_t cols) {
        return [variant, x = test::Random(2).normals(cols, 1.0f)](const kernels::Panels& w, int64_t begin,
                                                                  int64_t end, float* y) {
            variant.run(w, x.data(), w.cols, 1, begin, end, y, w.rows);
        };
    });
}

/// The table's rows, at one thread and at all.
template <typename Variant>
void add_variants(Bench& bench, std::span<const Variant> variants,
                  void (*add)(Bench&, const Variant&, const Shape&, int)) {
    for (const Variant& variant : variants) {
        if (!kernels::tier_supported(variant.tier)) continue;
        for (const Shape& shape : shapes_for(variant)) {
            for (const int threads : bench.thread_counts()) add(bench, variant, shape, threads);
        }
    }
}

}  // namespace

void add_decode_rows(Bench& bench) {
    add_variants(bench, kernels::matmul_int8_variants(), add_int8);
    add_variants(bench, kernels::matmul_f32_variants(), add_f32);
}

}  // namespace waste::bench
