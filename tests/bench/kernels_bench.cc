// Every row of the variant tables at the model's shapes, against the rate at which this machine reads memory.
//
// Working sets are far larger than the caches: matrices and states are taken in turn from a pool. GB/s counts
// weight bytes (matvec) or 8 K V bytes a step (kda), as the kernels' headers do; `roof` is that over the read
// rate measured at the start of the same run, one thread. Both go by CPU time, so that a neighbour on the
// core does not count. Give --benchmark_repetitions for medians.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <cstring>
#include <ctime>
#include <string>
#include <vector>

#include "kernels/format.h"
#include "kernels/kda.h"
#include "kernels/matvec.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

constexpr int64_t kPoolBytes = int64_t{512} << 20;

struct Shape {
    int64_t rows;
    int64_t cols;
};

constexpr Shape kProjection{12288, 7168};  ///< K3: q, k, v, g
constexpr Shape kExpert{3072, 3584};       ///< K3: gate or up of a routed expert; the next one lies behind it
constexpr Shape kExpertPair{6144,
                            3584};  ///< both with their panels interleaved: one matrix of twice the rows
constexpr Shape kRouter{896, 7168};

double cpu_seconds() {
    return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

/// Bytes a second of the best of several passes over the pool.
double measure_read_rate() {
    const test::AlignedBytes pool(kPoolBytes);
    std::memset(const_cast<std::byte*>(pool.data()), 1, static_cast<size_t>(kPoolBytes));
    double best = 0.0;
    for (int pass = 0; pass < 7; ++pass) {
        const double start = cpu_seconds();
        uint64_t sums[16] = {};
        for (int64_t i = 0; i < kPoolBytes; i += sizeof sums) {
            uint64_t words[16];
            std::memcpy(words, pool.data() + i, sizeof words);
            for (int lane = 0; lane < 16; ++lane) sums[lane] += words[lane];
        }
        benchmark::DoNotOptimize(sums);
        best = std::max(best, static_cast<double>(kPoolBytes) / (cpu_seconds() - start));
    }
    return best;
}

double read_rate() {
    static const double rate = measure_read_rate();
    return rate;
}

void report(benchmark::State& state, double started, int64_t bytes_a_call) {
    const double bytes = static_cast<double>(bytes_a_call) * static_cast<double>(state.iterations());
    const double rate = bytes / (cpu_seconds() - started);
    state.counters["GB/s"] = rate * 1e-9;
    state.counters["roof"] = rate / read_rate();
}

/// Copies of one matrix whose panels are all alike: kernels do not look at the values.
class MatrixPool {
  public:
    MatrixPool(Format format, Shape shape)
        : shape_(shape),
          stride_(matrix_bytes(format, shape.rows, shape.cols)),
          count_(std::max(int64_t{1}, kPoolBytes / stride_)),
          bytes_(stride_ * count_) {
        const test::TestMatrix panel = test::random_matrix(format, kPanelRows, shape.cols, 1);
        const int64_t size = panel_bytes(format, shape.cols);
        for (int64_t offset = 0; offset < stride_ * count_; offset += size) {
            std::memcpy(bytes_.data() + offset, panel.bytes.data(), static_cast<size_t>(size));
        }
    }
    Panels next() {
        turn_ = (turn_ + 1) % count_;
        return {bytes_.data() + turn_ * stride_, shape_.rows, shape_.cols};
    }
    int64_t matrix_size() const { return stride_; }

  private:
    Shape shape_;
    int64_t stride_;
    int64_t count_;
    int64_t turn_ = 0;
    test::AlignedBytes bytes_;
};

template <typename Run, typename Activation>
void bench_matvec(benchmark::State& state, Format format, Shape shape, Run run, const Activation& x) {
    MatrixPool pool(format, shape);
    std::vector<float> y(static_cast<size_t>(shape.rows));
    const double started = cpu_seconds();
    for (auto _ : state) {
        run(pool.next(), x, 0, panel_count(shape.rows), y.data());
        benchmark::DoNotOptimize(y.data());
    }
    report(state, started, pool.matrix_size());
}

void bench_kda(benchmark::State& state, KdaStep step) {
    constexpr int64_t kDim = 128;
    constexpr int64_t kStateSize = kDim * kDim;
    const int64_t heads = kPoolBytes / (kStateSize * 4);
    test::Random random(1);
    std::vector<float> states(static_cast<size_t>(heads * kStateSize), 0.5f);
    const std::vector<float> q = random.normals(kDim, 0.01f);
    const std::vector<float> k = random.normals(kDim, 0.1f);
    const std::vector<float> v = random.normals(kDim, 1.0f);
    const std::vector<float> decay(kDim, 0.99f);
    std::vector<float> out(kDim);
    const KdaHead head{q.data(), k.data(), v.data(), decay.data(), 0.5f, kDim, kDim};
    int64_t turn = 0;
    const double started = cpu_seconds();
    for (auto _ : state) {
        step(head, states.data() + turn * kStateSize, out.data());
        benchmark::DoNotOptimize(out.data());
        turn = (turn + 1) % heads;
    }
    report(state, started, 8 * kStateSize);
}

std::string label(std::string_view kernel, Tier tier, std::string_view format, Shape shape) {
    return std::string(kernel) + "/" + std::string(tier_name(tier)) + "/" + std::string(format) + "/" +
           std::to_string(shape.rows) + "x" + std::to_string(shape.cols);
}

std::vector<Shape> shapes_of(Format format) {
    if (format == Format::mxfp4) return {kExpert, kExpertPair};
    return {format == Format::f32 || format == Format::bf16 ? kRouter : kProjection};
}

void register_int8(const MatvecInt8Variant& variant, Shape shape) {
    const auto name = label("matvec_int8", variant.tier, format_info(variant.format).name, shape);
    benchmark::RegisterBenchmark(name.c_str(), [variant, shape](benchmark::State& state) {
        const test::QuantizedVector x(test::Random(2).normals(shape.cols, 1.0f));
        bench_matvec(state, variant.format, shape, variant.run, x.view());
    });
}

void register_f32(const MatvecF32Variant& variant, Shape shape) {
    const auto name = label("matvec_f32", variant.tier, format_info(variant.format).name, shape);
    benchmark::RegisterBenchmark(name.c_str(), [variant, shape](benchmark::State& state) {
        const std::vector<float> x = test::Random(2).normals(shape.cols, 1.0f);
        bench_matvec(state, variant.format, shape, variant.run, x.data());
    });
}

void register_all() {
    for (const MatvecInt8Variant& variant : matvec_int8_variants()) {
        if (!tier_supported(variant.tier)) continue;
        for (const Shape shape : shapes_of(variant.format)) register_int8(variant, shape);
    }
    for (const MatvecF32Variant& variant : matvec_f32_variants()) {
        if (!tier_supported(variant.tier)) continue;
        for (const Shape shape : shapes_of(variant.format)) register_f32(variant, shape);
    }
    for (const KdaStepVariant& variant : kda_step_variants()) {
        if (!tier_supported(variant.tier)) continue;
        const auto name = label("kda_step", variant.tier, "f32", {128, 128});
        benchmark::RegisterBenchmark(name.c_str(),
                                     [variant](benchmark::State& state) { bench_kda(state, variant.run); });
    }
}

}  // namespace
}  // namespace waste::kernels

int main(int argc, char** argv) {
    benchmark::Initialize(&argc, argv);
    if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 1;
    benchmark::AddCustomContext("dram_read_GB/s", std::to_string(waste::kernels::read_rate() * 1e-9));
    waste::kernels::register_all();
    benchmark::RunSpecifiedBenchmarks();
    return 0;
}
