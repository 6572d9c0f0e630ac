#include "tests/bench/pool.h"

#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <stdexcept>

#include "tests/bench/loop_rate.h"
#include "tests/support/kernel_matrix.h"

namespace waste::bench {
namespace {

constexpr int64_t kPartBytes = 512;
/// Of a block, at its front (kernels/panel.h).
constexpr size_t kMxfp4ScaleBytes = kernels::kBlockGroups * kernels::kPanelRows;

void read_range(const std::byte* data, int64_t bytes) {
    using Vector [[gnu::vector_size(16)]] = uint64_t;
    constexpr int kVectors = 8;
    constexpr int64_t kAhead = 2048;
    Vector sums[kVectors] = {};
    for (int64_t i = 0; i < bytes; i += sizeof sums) {
        const auto* from = reinterpret_cast<const Vector*>(data + i);
        for (int64_t line = 0; line < 2; ++line) __builtin_prefetch(data + i + kAhead + line * 64);
        for (int v = 0; v < kVectors; ++v) sums[v] += from[v];
    }
    benchmark::DoNotOptimize(sums);
}

void update_range(std::byte* data, int64_t bytes) {
    auto* words = reinterpret_cast<uint64_t*>(data);
    for (int64_t i = 0; i < bytes / 8; ++i) words[i] += 1;
    benchmark::DoNotOptimize(data);
}

double seconds_of(Team& team, const std::function<void(int)>& job) {
    const double cpu_begin = thread_seconds();
    const auto begin = std::chrono::steady_clock::now();
    team.run(job);
    const std::chrono::duration<double> wall = std::chrono::steady_clock::now() - begin;
    return team.size() == 1 ? thread_seconds() - cpu_begin : wall.count();
}

int64_t part_begin(int member, int members) {
    return Pool::kBytes / kPartBytes * member / members * kPartBytes;
}

/// Job: range(begin, bytes) on the member's part of the pool.
template <typename Range>
double best_rate(Team& team, double bytes, Range range) {
    double best = 0.0;
    for (int pass = 0; pass < 7; ++pass) {
        const double seconds = seconds_of(team, [&](int member) {
            const int64_t begin = part_begin(member, team.size());
            range(begin, part_begin(member + 1, team.size()) - begin);
        });
        best = std::max(best, bytes / seconds);
    }
    return best;
}

}  // namespace

Pool::Pool(Pages pages, Team& team) {
    auto memory = container::SystemMemory::map(static_cast<size_t>(kBytes));
    if (!memory) throw std::runtime_error("no memory for the pool of weights");
    memory_ = std::move(*memory);
    if (pages == Pages::ordinary) (void)madvise(memory_.data(), static_cast<size_t>(kBytes), MADV_NOHUGEPAGE);
    team.run([&](int member) {
        const int64_t begin = part_begin(member, team.size());
        const int64_t bytes = part_begin(member + 1, team.size()) - begin;
        std::memset(memory_.data() + begin, 1, static_cast<size_t>(bytes));
    });
}

const std::byte* Pool::weights(kernels::Format format) {
    if (content_ != format) {
        auto block = test::random_matrix(format, kernels::kPanelRows, kernels::kBlockCols, 1);
        // A test matrix has one scale of 2^-127. Subnormal weights are slow, and released ones hold none.
        if (format == kernels::Format::mxfp4) std::memset(block.bytes.data(), 120, kMxfp4ScaleBytes);
        const int64_t size = kernels::format_info(format).block_bytes;
        for (int64_t at = 0; at + size <= kBytes; at += size) {
            std::memcpy(memory_.data() + at, block.bytes.data(), static_cast<size_t>(size));
        }
        content_ = format;
    }
    return memory_.data();
}

float* Pool::states() {
    (void)weights(kernels::Format::f32);
    content_.reset();
    return reinterpret_cast<float*>(memory_.data());
}

MemoryRates Pool::measure(Team& team) {
    content_.reset();
    std::byte* data = memory_.data();
    const auto bytes = static_cast<double>(kBytes);
    return {best_rate(team, bytes, [data](int64_t begin, int64_t size) { read_range(data + begin, size); }),
            best_rate(team, 2 * bytes,
                      [data](int64_t begin, int64_t size) { update_range(data + begin, size); })};
}

}  // namespace waste::bench
