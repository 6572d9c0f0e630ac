#include "kernels/mla.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace waste::kernels {
namespace {

constexpr int64_t kChains = 16;

/// a . b in 16 interleaved chains, folded pairwise.
float dot(const float* a, const float* b, int64_t n) {
    std::array<float, kChains> chain{};
    int64_t i = 0;
    for (; i + kChains <= n; i += kChains) {
        for (int64_t j = 0; j < kChains; ++j) {
            chain[static_cast<size_t>(j)] += a[i + j] * b[i + j];
        }
    }
    for (int64_t j = 0; i + j < n; ++j) chain[static_cast<size_t>(j)] += a[i + j] * b[i + j];
    for (size_t width = kChains / 2; width > 0; width /= 2) {
        for (size_t j = 0; j < width; ++j) chain[j] += chain[j + width];
    }
    return chain[0];
}

/// A softmax over some positions, before the division: weights are relative to exp(maximum).
struct Partial {
    float maximum;
    float sum;
};

/// One block of positions: its softmax weights in `scores`, their weighted latent sum in `weighted`.
Partial attend_block(const MlaQuery& query, int64_t begin, int64_t count, float* scores, float* weighted) {
    float maximum = -std::numeric_limits<float>::infinity();
    for (int64_t i = 0; i < count; ++i) {
        const int64_t position = begin + i;
        const float latent_part = dot(query.q_latent, query.latent + position * query.rank, query.rank);
        const float rope_part = dot(query.q_rope, query.rope + position * query.rope_dim, query.rope_dim);
        scores[i] = (latent_part + rope_part) * query.scale;
        maximum = std::max(maximum, scores[i]);
    }
    std::fill_n(weighted, query.rank, 0.0f);
    float sum = 0.0f;
    for (int64_t i = 0; i < count; ++i) {
        const float weight = std::exp(scores[i] - maximum);
        sum += weight;
        const float* latent = query.latent + (begin + i) * query.rank;
        for (int64_t c = 0; c < query.rank; ++c) weighted[c] += weight * latent[c];
    }
    return {maximum, sum};
}

}  // namespace

void mla_attend(const MlaQuery& query, float* scratch, float* out) {
    float* scores = scratch;
    float* weighted = scratch + kMlaBlock;
    std::fill_n(out, query.rank, 0.0f);
    Partial total{-std::numeric_limits<float>::infinity(), 0.0f};
    for (int64_t begin = 0; begin < query.positions; begin += kMlaBlock) {
        const int64_t count = std::min(kMlaBlock, query.positions - begin);
        const Partial block = attend_block(query, begin, count, scores, weighted);
        const float maximum = std::max(total.maximum, block.maximum);
        const float keep = std::exp(total.maximum - maximum);
        const float take = std::exp(block.maximum - maximum);
        for (int64_t c = 0; c < query.rank; ++c) out[c] = out[c] * keep + weighted[c] * take;
        total = {maximum, total.sum * keep + block.sum * take};
    }
    for (int64_t c = 0; c < query.rank; ++c) out[c] /= total.sum;
}

}  // namespace waste::kernels
