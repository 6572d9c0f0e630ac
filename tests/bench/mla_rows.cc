// MLA attention, time a query: 8 heads over one span of 4096 latents, bound by multiply-adds.
#include <fmt/format.h>

#include "kernels/mla.h"
#include "tests/bench/bench.h"
#include "tests/support/kernel_matrix.h"

namespace waste::bench {
namespace {

constexpr int64_t kPositions = kernels::kMlaSpan;
constexpr int64_t kRank = 512;
constexpr int64_t kRope = 64;
constexpr int64_t kHeads = kernels::kMlaHeads;

std::function<void()> attend_call(const kernels::MlaKernels& mla) {
    return [&mla, q = test::Random(1).normals(kHeads * (kRank + kRope), 0.1f),
            cache = test::Random(2).normals(kPositions * (kRank + kRope), 1.0f),
            scratch = std::vector<float>(kernels::mla_scratch_floats(kRank)),
            out = std::vector<float>(kHeads * (kRank + 2))]() mutable {
        const kernels::MlaQuery query{q.data(), kRank,        q.data() + kHeads * kRank,         kRope,
                                      kHeads,   cache.data(), cache.data() + kPositions * kRank, kRank,
                                      kRope,    0.07f};
        mla.attend(query, 0, kPositions, scratch.data(),
                   {out.data(), out.data() + kHeads, out.data() + 2 * kHeads});
    };
}

}  // namespace

void add_mla_rows(Bench& bench) {
    for (const kernels::Tier tier : portable_tiers()) {
        Row row;
        row.name = fmt::format("mla_attend/{}/8x4096/t1", kernels::tier_name(tier));
        row.threads = 1;
        row.units_a_call = 1;
        row.work = Work::multiply_adds;
        row.work_a_unit = kHeads * kPositions * (2 * kRank + kRope);
        row.limit = bench.peaks(tier).f32;
        row.prepare = [tier] { return attend_call(*kernels::kernels_for(tier).mla); };
        bench.add(std::move(row));
    }
}

}  // namespace waste::bench
