// Times every kernel against what this machine could do at most.
#include <benchmark/benchmark.h>
#include <fmt/format.h>

#include <charconv>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "tests/bench/bench.h"
#include "tests/bench/table.h"

namespace waste::bench {
namespace {

constexpr std::string_view kHelp =
    R"(usage: waste-bench kernels [FILTER] [options]

Times every kernel that this CPU can run, in every tier, against the machine's limits, which are measured
first: what memory gives to as many threads, and the peak of the tier's own instructions in registers.

  FILTER             rows whose name this regular expression matches, for example decode_int8/avx512
  --quick            shorter runs: under a minute in all
  --pages KIND       what the weights lie in: huge (default; where the system grants them) or ordinary
  --threads N        of the rows with several threads; default: all CPUs of this process
  --json FILE        also writes Google Benchmark's JSON
  --benchmark_...    any option of Google Benchmark, for example --benchmark_repetitions=5

Rows: family/tier/format/model/ROWSxCOLS/tTHREADS or nTOKENS. Times are of one matrix (decode, product),
token (kda), query of 8 heads (mla) or element (the rest); by the thread's CPU time, by the clock where
there are several threads. Limits are measured before the first row and again after the last.
of_limit: decode    weight bytes over the read rate of the same pages and threads
          kda_step  8 K V bytes over the rate of reading and writing back
          product, kda_chunk, mla   multiply-adds over the peak (int8 or f32) of one thread
)";

struct Options {
    int threads = static_cast<int>(std::thread::hardware_concurrency());
    Pages pages = Pages::huge;
    std::vector<std::string> library;  ///< for Google Benchmark
};

/// Nothing where the command line is wrong.
std::optional<Options> parse(const std::vector<std::string>& args) {
    if (args.size() < 2 || args[1] != "kernels") return std::nullopt;
    Options options;
    options.library = {args[0], "--benchmark_min_time=0.1"};
    for (size_t i = 2; i < args.size(); ++i) {
        const std::string& arg = args[i];
        const bool has_value = i + 1 < args.size();
        if (arg == "--quick") {
            options.library.push_back("--benchmark_min_time=0.01");
        } else if (arg == "--json" && has_value) {
            options.library.push_back("--benchmark_out=" + args[++i]);
            options.library.push_back("--benchmark_out_format=json");
        } else if (arg == "--pages" && has_value && (args[i + 1] == "huge" || args[i + 1] == "ordinary")) {
            options.pages = args[++i] == "huge" ? Pages::huge : Pages::ordinary;
        } else if (arg == "--threads" && has_value) {
            const std::string& value = args[++i];
            const auto [end, error] =
                std::from_chars(value.data(), value.data() + value.size(), options.threads);
            if (error != std::errc() || *end != '\0' || options.threads < 1) return std::nullopt;
        } else if (arg.starts_with("--benchmark_")) {
            options.library.push_back(arg);
        } else if (!arg.starts_with("-")) {
            options.library.push_back("--benchmark_filter=" + arg);
        } else {
            return std::nullopt;
        }
    }
    return options;
}

std::string_view name_of(Pages pages) {
    return pages == Pages::huge ? "huge" : "ordinary";
}

std::string memory_line(Pages pages, int threads, const MemoryRates& rates) {
    return fmt::format("  memory, {:<8} pages, {:>3} threads: read {:6.1f} GB/s, update {:6.1f} GB/s\n",
                       name_of(pages), threads, rates.read * 1e-9, rates.update * 1e-9);
}

/// What rows are held against.
std::string limits_text(const Bench& bench) {
    std::string text;
    for (const int threads : bench.thread_counts()) {
        text += memory_line(bench.pages(), threads, bench.memory(threads));
    }
    for (const kernels::Tier tier : kernels::supported_tiers()) {
        const Peaks& peaks = bench.peaks(tier);
        if (peaks.f32 == 0.0) continue;
        text += fmt::format("  peak of {:<8} one thread: int8 {:6.1f} Gmac/s, f32 {:6.1f} Gmac/s\n",
                            kernels::tier_name(tier), peaks.int8 * 1e-9, peaks.f32 * 1e-9);
    }
    return text;
}

/// The same for the file.
void add_context(const Bench& bench) {
    const auto add = [](const std::string& key, double rate) {
        benchmark::AddCustomContext(key, fmt::format("{:.1f}", rate * 1e-9));
    };
    benchmark::AddCustomContext("pages", std::string(name_of(bench.pages())));
    for (const int threads : bench.thread_counts()) {
        add(fmt::format("read_GB/s_t{}", threads), bench.memory(threads).read);
        add(fmt::format("update_GB/s_t{}", threads), bench.memory(threads).update);
    }
    for (const kernels::Tier tier : kernels::supported_tiers()) {
        add(fmt::format("int8_Gmac/s_{}", kernels::tier_name(tier)), bench.peaks(tier).int8);
        add(fmt::format("f32_Gmac/s_{}", kernels::tier_name(tier)), bench.peaks(tier).f32);
    }
}

/// Rows are held against the pages that they lie in; the other kind stands here for comparison.
std::string other_pages_text(Bench& bench) {
    const Pages other = bench.pages() == Pages::huge ? Pages::ordinary : Pages::huge;
    Pool pool(other, bench.team(bench.thread_counts().back()));
    std::string text;
    for (const int threads : bench.thread_counts()) {
        text += memory_line(other, threads, pool.measure(bench.team(threads)));
    }
    return text;
}

int run_kernels(Options& options) {
    std::vector<char*> argv;
    for (std::string& arg : options.library) argv.push_back(arg.data());
    int argc = static_cast<int>(argv.size());
    benchmark::Initialize(&argc, argv.data());
    if (benchmark::ReportUnrecognizedArguments(argc, argv.data())) return 2;

    Bench bench(options.threads, options.pages);
    add_decode_rows(bench);
    add_product_rows(bench);
    add_kda_rows(bench);
    add_mla_rows(bench);
    add_pointwise_rows(bench);
    add_context(bench);
    Table table(fmt::format("limits, weights in {} pages\n{}not used:\n{}\n", name_of(bench.pages()),
                            limits_text(bench), other_pages_text(bench)));
    benchmark::RunSpecifiedBenchmarks(&table);
    bench.measure_limits();
    fmt::print("\nlimits after the last row: where they moved, the machine had other work\n{}",
               limits_text(bench));
    return 0;
}

}  // namespace
}  // namespace waste::bench

int main(int argc, char** argv) {
    const std::vector<std::string> args(argv, argv + argc);
    for (const std::string& arg : args) {
        if (arg == "--help") {
            std::fputs(waste::bench::kHelp.data(), stdout);
            return 0;
        }
    }
    auto options = waste::bench::parse(args);
    if (!options) {
        std::fputs(waste::bench::kHelp.data(), stderr);
        return 2;
    }
    try {
        return waste::bench::run_kernels(*options);
    } catch (const std::exception& error) {
        std::fprintf(stderr, "waste-bench: %s\n", error.what());
        return 1;
    }
}
