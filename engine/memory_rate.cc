#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>

#include "container/memory.h"
#include "engine/bench.h"

namespace waste::engine {
namespace {

constexpr size_t kPiece = size_t{1} << 20;
constexpr int kPasses = 5;

/// Adds up 64-bit words in as many chains as hide the latency of an addition. Whether asking for lines ahead helps
/// depends on the CPU's own prefetchers.
template <bool kAskAhead>
uint64_t sum_words(const std::byte* data, size_t bytes) {
    constexpr size_t kAhead = 2048, kLine = 64;
    uint64_t sums[16] = {};
    for (size_t i = 0; i < bytes; i += sizeof sums) {
        if constexpr (kAskAhead) {
            for (size_t line = 0; line < sizeof sums; line += kLine)
                __builtin_prefetch(data + i + kAhead + line);
        }
        uint64_t words[16];
        std::memcpy(words, data + i, sizeof words);
        for (size_t lane = 0; lane < 16; lane++) sums[lane] += words[lane];
    }
    uint64_t all = 0;
    for (const uint64_t sum : sums) all += sum;
    return all;
}

}  // namespace

Result<double> measure_memory_rate(int threads, uint64_t bytes) {
    // Where the system refuses huge pages the ordinary ones are measured: they are what there is then.
    const auto pieces = static_cast<int64_t>(std::max<uint64_t>(bytes / kPiece, 1));
    const uint64_t read = static_cast<uint64_t>(pieces) * kPiece;
    const auto memory = container::SystemMemory::map(read);
    if (!memory) {
        return fail(ErrorKind::capacity, "memory rate",
                    fmt::format("there are no {} MiB of memory to measure with", pieces));
    }
    ThreadPool pool(threads);
    const auto piece = [&](int64_t i) { return memory->data() + static_cast<size_t>(i) * kPiece; };
    pool.run(pieces, [&](int64_t i) { std::memset(piece(i), 1, kPiece); });
    double best = 0;
    std::atomic<uint64_t> sink{0};
    for (int pass = 0; pass < kPasses; pass++) {
        for (const auto sum : {sum_words<false>, sum_words<true>}) {
            const auto start = std::chrono::steady_clock::now();
            pool.run(pieces, [&](int64_t i) { sink.fetch_add(sum(piece(i), kPiece)); });
            const std::chrono::duration<double> spent = std::chrono::steady_clock::now() - start;
            best = std::max(best, static_cast<double>(read) / spent.count());
        }
    }
    return best;
}

}  // namespace waste::engine
