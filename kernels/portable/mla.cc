#include "kernels/mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {
namespace {

constexpr int64_t kChains = 16;

/// a . b in 16 interleaved chains, folded pairwise.
float dot(const float* a, const float* b, int64_t n) {
    float chain[kChains] = {};
    int64_t i = 0;
    for (; i + kChains <= n; i += kChains) {
        for (int64_t j = 0; j < kChains; ++j) chain[j] += a[i + j] * b[i + j];
    }
    for (int64_t j = 0; i + j < n; ++j) chain[j] += a[i + j] * b[i + j];
    for (int64_t width = kChains / 2; width > 0; width /= 2) {
        for (int64_t j = 0; j < width; ++j) chain[j] += chain[j + width];
    }
    return chain[0];
}

/// One head, one block of positions: weights in `scores`, their weighted latent sum in `weighted`.
void attend_block(const MlaQuery& query, int64_t head, int64_t begin, int64_t count, float* scores,
                  const MlaPartial& out) {
    const float* q_latent = query.q_latent + head * query.latent_stride;
    const float* q_rope = query.q_rope + head * query.rope_stride;
    float maximum = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < count; ++i) {
        const int64_t position = begin + i;
        const float latent_part = dot(q_latent, query.latent + position * query.rank, query.rank);
        const float rope_part = dot(q_rope, query.rope + position * query.rope_dim, query.rope_dim);
        scores[i] = (latent_part + rope_part) * query.scale;
        maximum = std::max(maximum, scores[i]);
    }
    float* weighted = out.weighted;
    for (int64_t c = 0; c < query.rank; ++c) weighted[c] = 0.0f;
    float sum = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
        const float weight = std::exp(scores[i] - maximum);
        sum += weight;
        const float* latent = query.latent + (begin + i) * query.rank;
        for (int64_t c = 0; c < query.rank; ++c) weighted[c] += weight * latent[c];
    }
    *out.maximum = maximum;
    *out.sum = sum;
}

void merge(int64_t heads, int64_t rank, const MlaPartial& next, const MlaPartial& into) {
    for (int64_t h = 0; h < heads; ++h) {
        const float maximum = std::max(into.maximum[h], next.maximum[h]);
        const float keep = std::exp(into.maximum[h] - maximum);
        const float take = std::exp(next.maximum[h] - maximum);
        for (int64_t c = h * rank; c < (h + 1) * rank; ++c) {
            into.weighted[c] = into.weighted[c] * keep + next.weighted[c] * take;
        }
        into.maximum[h] = maximum;
        into.sum[h] = into.sum[h] * keep + next.sum[h] * take;
    }
}

void attend(const MlaQuery& query, int64_t begin, int64_t end, float* scratch, const MlaPartial& out) {
    float* scores = scratch;
    float* weighted = scratch + kMlaBlock;
    for (int64_t h = 0; h < query.heads; ++h) {
        const MlaPartial head{out.maximum + h, out.sum + h, out.weighted + h * query.rank};
        attend_block(query, h, begin, std::min(kMlaBlock, end - begin), scores, head);
        for (int64_t block = begin + kMlaBlock; block < end; block += kMlaBlock) {
            float maximum, sum;
            const MlaPartial next{&maximum, &sum, weighted};
            attend_block(query, h, block, std::min(kMlaBlock, end - block), scores, next);
            merge(1, query.rank, next, head);
        }
    }
}

void finish(int64_t heads, int64_t rank, const MlaPartial& partial, float* out, int64_t out_stride) {
    for (int64_t h = 0; h < heads; ++h) {
        for (int64_t c = 0; c < rank; ++c)
            out[h * out_stride + c] = partial.weighted[h * rank + c] / partial.sum[h];
    }
}

}  // namespace

const MlaKernels kMla{attend, merge, finish};

}  // namespace waste::kernels::WASTE_TIER
