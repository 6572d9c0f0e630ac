#include "kernels/attn_res.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "kernels/variants.h"

namespace waste::kernels::WASTE_TIER {
namespace {

float score_of(const float* candidate, const float* mix_weight, float eps, int64_t n) {
    double squares = 0.0;
    double product = 0.0;
    for (int64_t c = 0; c < n; ++c) {
        squares += double{candidate[c]} * double{candidate[c]};
        product += double{candidate[c]} * double{mix_weight[c]};
    }
    return static_cast<float>(product / std::sqrt(squares / static_cast<double>(n) + double{eps}));
}

void attn_res_mix(const float* const* candidates, int64_t count, const float* mix_weight, float eps,
                  int64_t hidden_size, float* out) {
    std::array<float, kMaxAttnResCandidates> weight;
    const size_t used = static_cast<size_t>(count);
    float maximum = -std::numeric_limits<float>::infinity();
    for (size_t i = 0; i < used; ++i) {
        weight[i] = score_of(candidates[i], mix_weight, eps, hidden_size);
        maximum = std::max(maximum, weight[i]);
    }
    float sum = 0.0f;
    for (size_t i = 0; i < used; ++i) {
        weight[i] = std::exp(weight[i] - maximum);
        sum += weight[i];
    }
    std::fill_n(out, hidden_size, 0.0f);
    for (size_t i = 0; i < used; ++i) {
        const float share = weight[i] / sum;
        for (int64_t c = 0; c < hidden_size; ++c) out[c] += share * candidates[i][c];
    }
}

}  // namespace

const AttnResKernels kAttnRes{attn_res_mix};

}  // namespace waste::kernels::WASTE_TIER
