#include "kernels/attn_res.h"

#include "kernels/portable/math.h"
#include "kernels/portable/sums.h"
#include "kernels/portable/table.h"

namespace waste::kernels::WASTE_TIER {
namespace {

/// Columns of one round of the mix, in vectors: enough chains to hide the latency of an fma.
constexpr int kMixVectors = 8;

float score_of(const float* candidate, const float* mix_weight, float eps, int64_t n) {
    Wide squares, product;
    for_wide(n, [&](auto at) {
        const Wide value = at(candidate);
        squares.add_product(value, value);
        product.add_product(value, at(mix_weight));
    });
    const double mean = squares.fold() / static_cast<double>(n);
    return static_cast<float>(product.fold() / __builtin_sqrt(mean + double{eps}));
}

/// weight[0 .. count) = softmax(weight)
void softmax(float* weight, int64_t count) {
    float maximum = -__builtin_inff();
    for (int64_t i = 0; i < count; ++i) maximum = weight[i] > maximum ? weight[i] : maximum;
    for_strips(0, count,
               [=](auto strip) { strip.store(weight, exp_nonpositive(strip.load(weight) - maximum)); });
    float sum = 0.0f;
    for (int64_t i = 0; i < count; ++i) sum += weight[i];
    for (int64_t i = 0; i < count; ++i) weight[i] /= sum;
}

void attn_res_mix(const float* const* candidates, int64_t count, const float* mix_weight, float eps,
                  int64_t hidden_size, float* out) {
    float share[kMaxAttnResCandidates];
    for (int64_t i = 0; i < count; ++i) share[i] = score_of(candidates[i], mix_weight, eps, hidden_size);
    softmax(share, count);

    int64_t c = 0;
    for (; c + kMixVectors * kLanes <= hidden_size; c += kMixVectors * kLanes) {
        Floats sum[kMixVectors] = {};
        for (int64_t i = 0; i < count; ++i) {
            const Floats weight = all(share[i]);
#pragma GCC unroll 8
            for (int v = 0; v < kMixVectors; ++v) {
                sum[v] = fma(weight, load(candidates[i] + c + v * kLanes), sum[v]);
            }
        }
#pragma GCC unroll 8
        for (int v = 0; v < kMixVectors; ++v) store(out + c + v * kLanes, sum[v]);
    }
    for_strips(c, hidden_size, [=, &share](auto strip) {
        Floats sum = {};
        for (int64_t i = 0; i < count; ++i) sum = fma(all(share[i]), strip.load(candidates[i]), sum);
        strip.store(out, sum);
    });
}

}  // namespace

const AttnResKernels kAttnRes{attn_res_mix};

}  // namespace waste::kernels::WASTE_TIER
