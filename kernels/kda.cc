#include "kernels/kda.h"

#include <cmath>

#include "kernels/activation.h"
#include "kernels/variants.h"

namespace waste::kernels {
namespace {

constexpr KdaStepVariant kVariants[] = {
    {Tier::scalar, scalar::kda_step},
#if defined(__x86_64__)
    {Tier::avx2, avx2::kda_step},
    {Tier::avx512, avx512::kda_step},
#elif defined(__aarch64__)
    {Tier::neon, neon::kda_step},
#endif
};

/// log(1 + e^x); from 20 on it is x to the last bit of f32.
float softplus(float x) {
    return x > 20.0f ? x : std::log1p(std::exp(x));
}

}  // namespace

std::span<const KdaStepVariant> kda_step_variants() {
    return kVariants;
}

void kda_decay_bounded(const float* raw, const float* dt_bias, float a_log, float lower_bound, int64_t n,
                       float* decay) {
    const float a = std::exp(a_log);
    for (int64_t i = 0; i < n; ++i) decay[i] = std::exp(lower_bound * sigmoid(a * (raw[i] + dt_bias[i])));
}

void kda_decay_softplus(const float* raw, const float* dt_bias, float a_log, int64_t n, float* decay) {
    const float a = std::exp(a_log);
    for (int64_t i = 0; i < n; ++i) decay[i] = std::exp(-a * softplus(raw[i] + dt_bias[i]));
}

}  // namespace waste::kernels
