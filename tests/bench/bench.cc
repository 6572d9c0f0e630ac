#include "tests/bench/bench.h"

#include <benchmark/benchmark.h>

#include "tests/bench/peaks.h"

namespace waste::bench {

Bench::Bench(int threads, Pages pages) : pages_(pages), all_(threads), pool_(pages, all_) {
    measure_limits();
}

void Bench::measure_limits() {
    memory_one_ = pool_.measure(one_);
    memory_all_ = pool_.measure(all_);
    for (const kernels::Tier tier : kernels::supported_tiers()) {
        peaks_[tier] = {int8_peak(tier), f32_peak(tier)};
    }
}

std::vector<int> Bench::thread_counts() const {
    if (all_.size() == 1) return {1};
    return {1, all_.size()};
}

const std::function<void()>& Bench::prepared(const Row& row) {
    if (prepared_ != row.name) {
        call_ = row.prepare();
        prepared_ = row.name;
    }
    return call_;
}

void Bench::add(Row row) {
    const std::string name = row.name;
    const int threads = row.threads;
    auto* entry =
        benchmark::RegisterBenchmark(name.c_str(), [this, row = std::move(row)](benchmark::State& state) {
            const std::function<void()>& call = prepared(row);
            while (state.KeepRunningBatch(row.units_a_call)) call();
            if (row.work == Work::none) return;
            const double work = row.work_a_unit * static_cast<double>(state.iterations());
            const auto rate = benchmark::Counter::kIsRate;
            state.counters[row.work == Work::bytes ? "GB/s" : "Gmac/s"] = {1e-9 * work, rate};
            if (row.limit > 0.0) state.counters["of_limit"] = {work / row.limit, rate};
        });
    // One thread goes by its CPU time, which neighbours on the core do not change.
    if (threads > 1) entry->UseRealTime();
}

std::vector<kernels::Tier> portable_tiers() {
    std::vector<kernels::Tier> tiers;
    for (const kernels::Tier tier : kernels::supported_tiers()) {
        const kernels::Tier base = kernels::base_tier(tier);
        if (tier == base || kernels::kernels_for(tier).norm != kernels::kernels_for(base).norm)
            tiers.push_back(tier);
    }
    return tiers;
}

}  // namespace waste::bench
