#include "kernels/kda.h"

#include "kernels/kernel_set.h"
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

void activate_gate(const KernelSet& kernels, const KdaCall& call, const float* raw, float* decay) {
    if (call.gate_form == KdaGate::bounded) {
        kernels.kda_gate->bounded(raw, call.dt_bias, call.a_log, call.lower_bound, call.key_dim, decay);
    } else {
        kernels.kda_gate->softplus(raw, call.dt_bias, call.a_log, call.key_dim, decay);
    }
}

}  // namespace

std::span<const KdaStepVariant> kda_step_variants() {
    return kVariants;
}

int64_t kda_scratch_floats(int64_t key_dim, int64_t) {
    return key_dim;
}

void kda_run(const KernelSet& kernels, const KdaCall& call, float* scratch) {
    for (const KdaSequence& sequence : call.sequences) {
        float* state = call.states + sequence.slot * call.slot_stride;
        for (int64_t i = 0; i < sequence.tokens; ++i) {
            const int64_t row = sequence.first_token + i;
            const float* decay = call.gate + row * call.stride;
            if (call.gate_form != KdaGate::decay) {
                activate_gate(kernels, call, decay, scratch);
                decay = scratch;
            }
            float beta = call.beta[row * call.beta_stride];
            if (call.beta_is_logit) kernels.activation->sigmoid(&beta, 1, &beta);
            const KdaHead head{call.q + row * call.stride,
                               call.k + row * call.stride,
                               call.v + row * call.stride,
                               decay,
                               beta,
                               call.key_dim,
                               call.value_dim};
            kernels.kda_step(head, state, call.out + row * call.out_stride);
        }
    }
}

}  // namespace waste::kernels
