// KDA, time a token: single steps are bound by the state in memory, chunks by multiply-adds.
#include <fmt/format.h>

#include "kernels/kda.h"
#include "tests/bench/bench.h"
#include "tests/support/kernel_matrix.h"

namespace waste::bench {
namespace {

constexpr int64_t kDim = 128;
constexpr int64_t kStateFloats = kDim * kDim;
constexpr int64_t kStates = Pool::kBytes / 4 / kStateFloats;
/// States of a call of the step kernel, over all threads.
constexpr int64_t kStatesACall = 128;

/// Tokens of one head as the kernels want them.
struct Tokens {
    explicit Tokens(int64_t count)
        : q(test::Random(1).normals(count * kDim, 0.01f)),
          k(test::Random(2).normals(count * kDim, 0.09f)),
          v(test::Random(3).normals(count * kDim, 1.0f)),
          decay(static_cast<size_t>(count * kDim), 0.99f),
          beta(static_cast<size_t>(count), 0.5f) {}

    std::vector<float> q;
    std::vector<float> k;
    std::vector<float> v;
    std::vector<float> decay;
    std::vector<float> beta;
};

std::function<void()> step_call(Bench& bench, kernels::KdaStep step, int threads) {
    return [&team = bench.team(threads), states = bench.pool().states(), step, in = Tokens(1),
            turn = int64_t{0}]() mutable {
        team.run([&](int member) {
            float out[kDim];
            const kernels::KdaHead head{in.q.data(),     in.k.data(), in.v.data(), in.decay.data(),
                                        in.beta.front(), kDim,        kDim};
            const int64_t end = kStatesACall * (member + 1) / team.size();
            for (int64_t i = kStatesACall * member / team.size(); i < end; ++i) {
                step(head, states + (turn + i) % kStates * kStateFloats, out);
            }
        });
        turn = (turn + kStatesACall) % kStates;
    };
}

void add_step(Bench& bench, const kernels::KdaStepVariant& variant, int threads) {
    Row row;
    row.name = fmt::format("kda_step/{}/128x128/t{}", kernels::tier_name(variant.tier), threads);
    row.threads = threads;
    row.units_a_call = kStatesACall;
    row.work = Work::bytes;
    row.work_a_unit = 8 * kStateFloats;
    row.limit = bench.memory(threads).update;
    row.prepare = [&bench, variant, threads] { return step_call(bench, variant.run, threads); };
    bench.add(std::move(row));
}

std::function<void()> chunk_call(Bench& bench, kernels::KdaChunk chunk) {
    const auto scratch_floats = static_cast<size_t>(kernels::kda_chunk_scratch_floats(kDim));
    return [states = bench.pool().states(), chunk, in = Tokens(kernels::kKdaChunk),
            out = std::vector<float>(kernels::kKdaChunk * kDim), scratch = std::vector<float>(scratch_floats),
            turn = int64_t{0}]() mutable {
        const kernels::KdaChunkHead head{in.q.data(), in.k.data(), kDim,       in.decay.data(),
                                         kDim,        in.v.data(), kDim,       in.beta.data(),
                                         kDim,        kDim,        out.data(), kDim};
        chunk(head, states + turn * kStateFloats, scratch.data());
        turn = (turn + 1) % kStates;
    };
}

void add_chunk(Bench& bench, const kernels::KdaChunkVariant& variant) {
    Row row;
    row.name = fmt::format("kda_chunk/{}/128x128/t1", kernels::tier_name(variant.tier));
    row.threads = 1;
    row.units_a_call = kernels::kKdaChunk;
    row.work = Work::multiply_adds;
    row.work_a_unit = 3 * kStateFloats;
    row.limit = bench.peaks(variant.tier).f32;
    row.prepare = [&bench, variant] { return chunk_call(bench, variant.run); };
    bench.add(std::move(row));
}

}  // namespace

void add_kda_rows(Bench& bench) {
    for (const kernels::KdaStepVariant& variant : kernels::kda_step_variants()) {
        if (!kernels::tier_supported(variant.tier)) continue;
        for (const int threads : bench.thread_counts()) add_step(bench, variant, threads);
    }
    for (const kernels::KdaChunkVariant& variant : kernels::kda_chunk_variants()) {
        if (kernels::tier_supported(variant.tier)) add_chunk(bench, variant);
    }
}

}  // namespace waste::bench
