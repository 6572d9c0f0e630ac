#include "kernels/mla.h"

#include "kernels/portable/math.h"
#include "kernels/portable/sums.h"
#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {
namespace {

// Register tiles. Scores: kScoreHeads heads times kTilePositions positions, a vector of chains each. Weighted
// sum: kSumHeads heads times kSumVectors vectors of the latent. 16 accumulators hide the latency of an fma;
// with the 16 registers of AVX2 it is 8. More heads in a tile read the latents fewer times from L2.
constexpr int kTilePositions = 4;
constexpr int kScoreHeads = kLanes == 8 ? 2 : 4;
constexpr int kSumHeads = 4;
constexpr int kSumVectors = kLanes == 8 ? 2 : 4;
constexpr int kSingleSumVectors = 8;

int64_t least(int64_t a, int64_t b) {
    return a < b ? a : b;
}

/// A tile's rows of a cache; past the last one it repeats. The hardware does not look ahead over the end of a
/// page, which comes every other row, so the tile after the next is prefetched into L2, by the first heads.
struct Rows {
    const float* at[kTilePositions];
    const float* ahead[kTilePositions];

    Rows(const float* cache, int64_t size, int64_t first, int64_t last) {
        for (int p = 0; p < kTilePositions; ++p) {
            at[p] = cache + least(first + p, last) * size;
            ahead[p] = cache + least(first + 2 * kTilePositions + p, last) * size;
        }
    }
    void prefetch_ahead(int64_t i) const {
#pragma GCC unroll 4
        for (int p = 0; p < kTilePositions; ++p) __builtin_prefetch(ahead[p] + i, 0, 2);
    }
};

/// Chains of one tile's dot products.
template <int kHeads>
struct Tile {
    Floats part[kChainVectors][kHeads][kTilePositions] = {};

    /// += q[h][i] * rows[p][i] for i < n, a multiple of kChains.
    void add(const float* q, int64_t q_stride, const Rows& rows, int64_t n, bool prefetch) {
        for (int v = 0; v < kChainVectors; ++v) {
            Floats chain[kHeads][kTilePositions];
            __builtin_memcpy(chain, part[v], sizeof chain);
            for (int64_t i = v * kLanes; i < n; i += kChains) {
                if (v == 0 && prefetch) rows.prefetch_ahead(i);
                Floats row[kTilePositions];
#pragma GCC unroll 4
                for (int p = 0; p < kTilePositions; ++p) row[p] = load(rows.at[p] + i);
#pragma GCC unroll 4
                for (int h = 0; h < kHeads; ++h) {
                    const Floats head = load(q + h * q_stride + i);
#pragma GCC unroll 4
                    for (int p = 0; p < kTilePositions; ++p) chain[h][p] = fma(head, row[p], chain[h][p]);
                }
            }
            __builtin_memcpy(part[v], chain, sizeof chain);
        }
    }

    /// The same for any n, the end padded with zeros.
    void add_all(const float* q, int64_t q_stride, const Rows& rows, int64_t n, bool prefetch) {
        const int64_t whole = n / kChains * kChains;
        add(q, q_stride, rows, whole, prefetch);
        if (whole == n) return;
        float padded_q[kHeads][kChains] = {};
        float padded_rows[kTilePositions][kChains] = {};
        for (int64_t i = whole; i < n; ++i) {
            for (int h = 0; h < kHeads; ++h) padded_q[h][i - whole] = q[h * q_stride + i];
            for (int p = 0; p < kTilePositions; ++p) padded_rows[p][i - whole] = rows.at[p][i];
        }
        const Rows padded(padded_rows[0], kChains, 0, kTilePositions - 1);
        add(padded_q[0], kChains, padded, kChains, false);
    }

    /// One head's sums, in the first kTilePositions lanes.
    Floats fold(int h) const {
        Floats sum[kTilePositions];
        for (int p = 0; p < kTilePositions; ++p) {
            Floats chain[kChainVectors];
            for (int v = 0; v < kChainVectors; ++v) chain[v] = part[v][h][p];
            for (int width = kChainVectors / 2; width > 0; width /= 2) {
                for (int v = 0; v < width; ++v) chain[v] += chain[v + width];
            }
            sum[p] = chain[0];
        }
        return fold4<AddOp>(sum[0], sum[1], sum[2], sum[3]);
    }
};

/// scores [kHeads][kMlaBlock] of kTilePositions positions from `first`; those past the last one repeat it.
template <int kHeads>
void score_tile(const MlaQuery& query, int64_t head, int64_t first, int64_t last, float* scores) {
    const Rows latent(query.latent, query.rank, first, last);
    const Rows rope(query.rope, query.rope_dim, first, last);
    Tile<kHeads> tile;
    tile.add_all(query.q_latent + head * query.latent_stride, query.latent_stride, latent, query.rank,
                 head == 0);
    tile.add_all(query.q_rope + head * query.rope_stride, query.rope_stride, rope, query.rope_dim, head == 0);
    for (int h = 0; h < kHeads; ++h) {
        const Floats score = tile.fold(h) * query.scale;
        __builtin_memcpy(scores + h * kMlaBlock, &score, kTilePositions * sizeof *scores);
    }
}

/// Runs `tiled(head)` for groups of kGroup heads and `single(head)` for the rest.
template <int kGroup, typename Tiled, typename Single>
void for_heads(int64_t heads, const Tiled& tiled, const Single& single) {
    int64_t h = 0;
    for (; h + kGroup <= heads; h += kGroup) tiled(h);
    for (; h < heads; ++h) single(h);
}

/// Reduces a block's values in kChains chains; `count` is a multiple of kChains.
template <template <typename> class Op>
float reduce_block(const float* values, int64_t count) {
    Floats chain[kChainVectors];
    for (int v = 0; v < kChainVectors; ++v) chain[v] = load(values + v * kLanes);
    for (int64_t i = kChains; i < count; i += kChains) {
        for (int v = 0; v < kChainVectors; ++v) {
            chain[v] = Op<Floats>::of(chain[v], load(values + i + v * kLanes));
        }
    }
    float lane[kChains];
    __builtin_memcpy(lane, chain, sizeof lane);
    for (int width = kChains / 2; width > 0; width /= 2) {
        for (int j = 0; j < width; ++j) lane[j] = Op<float>::of(lane[j], lane[j + width]);
    }
    return lane[0];
}

/// NaN loses, so the maximum is a number where there is one; it shows in the weights.
template <typename V>
struct MaxOp {
    static V of(V a, V b) { return b > a ? b : a; }
};

/// scores become weights relative to exp(maximum).
void weigh(float* scores, int64_t count, float* maximum, float* sum) {
    const int64_t padded = (count + kChains - 1) / kChains * kChains;
    for (int64_t i = count; i < padded; ++i) scores[i] = -__builtin_inff();
    const float most = reduce_block<MaxOp>(scores, padded);
    for_strips(0, padded,
               [=](auto strip) { strip.store(scores, exp_nonpositive(strip.load(scores) - most)); });
    *maximum = most;
    *sum = reduce_block<AddOp>(scores, padded);
}

/// weighted[h][c] = sum_i weights[h][i] * latent[i][c] for kVectors vectors of columns from c.
template <int kHeads, int kVectors>
void weighted_tile(const float* weights, const float* latent, int64_t rank, int64_t count, float* weighted) {
    Floats sum[kHeads][kVectors] = {};
    for (int64_t i = 0; i < count; ++i) {
        Floats row[kVectors];
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) row[v] = load(latent + i * rank + v * kLanes);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
            const Floats weight = all(weights[h * kMlaBlock + i]);
#pragma GCC unroll 8
            for (int v = 0; v < kVectors; ++v) sum[h][v] = fma(weight, row[v], sum[h][v]);
        }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
        for (int v = 0; v < kVectors; ++v) store(weighted + h * rank + v * kLanes, sum[h][v]);
    }
}

template <int kHeads, int kVectors>
void weighted_sum(const float* weights, const float* latent, int64_t rank, int64_t count, float* weighted) {
    int64_t c = 0;
    for (; c + kVectors * kLanes <= rank; c += kVectors * kLanes) {
        weighted_tile<kHeads, kVectors>(weights, latent + c, rank, count, weighted + c);
    }
    for_strips(c, rank, [=](auto strip) {
        for (int h = 0; h < kHeads; ++h) {
            Floats sum = {};
            for (int64_t i = 0; i < count; ++i) {
                sum = fma(all(weights[h * kMlaBlock + i]), strip.load(latent + i * rank), sum);
            }
            strip.store(weighted + h * rank, sum);
        }
    });
}

/// One block of positions, all heads.
void attend_block(const MlaQuery& query, int64_t begin, int64_t count, float* scores, const MlaPartial& out) {
    const int64_t last = begin + count - 1;
    for (int64_t i = 0; i < count; i += kTilePositions) {
        for_heads<kScoreHeads>(
            query.heads,
            [&](int64_t h) {
                score_tile<kScoreHeads>(query, h, begin + i, last, scores + h * kMlaBlock + i);
            },
            [&](int64_t h) { score_tile<1>(query, h, begin + i, last, scores + h * kMlaBlock + i); });
    }
    for (int64_t h = 0; h < query.heads; ++h) {
        weigh(scores + h * kMlaBlock, count, out.maximum + h, out.sum + h);
    }
    const float* latent = query.latent + begin * query.rank;
    for_heads<kSumHeads>(
        query.heads,
        [&](int64_t h) {
            weighted_sum<kSumHeads, kSumVectors>(scores + h * kMlaBlock, latent, query.rank, count,
                                                 out.weighted + h * query.rank);
        },
        [&](int64_t h) {
            weighted_sum<1, kSingleSumVectors>(scores + h * kMlaBlock, latent, query.rank, count,
                                               out.weighted + h * query.rank);
        });
}

void merge(int64_t heads, int64_t rank, const MlaPartial& next, const MlaPartial& into) {
    for (int64_t h = 0; h < heads; ++h) {
        const float maximum = MaxOp<float>::of(into.maximum[h], next.maximum[h]);
        const float keep = exp1(into.maximum[h] - maximum);
        const float take = exp1(next.maximum[h] - maximum);
        const float* from = next.weighted + h * rank;
        float* to = into.weighted + h * rank;
        for_strips(0, rank, [=](auto strip) {
            strip.store(to, fma(all(take), strip.load(from), strip.load(to) * keep));
        });
        into.maximum[h] = maximum;
        into.sum[h] = __builtin_fmaf(take, next.sum[h], into.sum[h] * keep);
    }
}

void attend(const MlaQuery& query, int64_t begin, int64_t end, float* scratch, const MlaPartial& out) {
    float maximum[kMlaHeads];
    float sum[kMlaHeads];
    const MlaPartial next{maximum, sum, scratch + kMlaHeads * kMlaBlock};
    attend_block(query, begin, least(kMlaBlock, end - begin), scratch, out);
    for (int64_t block = begin + kMlaBlock; block < end; block += kMlaBlock) {
        attend_block(query, block, least(kMlaBlock, end - block), scratch, next);
        merge(query.heads, query.rank, next, out);
    }
}

void finish(int64_t heads, int64_t rank, const MlaPartial& partial, float* out, int64_t out_stride) {
    for (int64_t h = 0; h < heads; ++h) {
        const float* weighted = partial.weighted + h * rank;
        const float sum = partial.sum[h];
        float* row = out + h * out_stride;
        for_strips(0, rank, [=](auto strip) { strip.store(row, strip.load(weighted) / sum); });
    }
}

}  // namespace

const MlaKernels kMla{attend, merge, finish};

}  // namespace waste::kernels::WASTE_TIER
