#include "kernels/kda.h"

#include "kernels/variants.h"

namespace waste::kernels::scalar {

void kda_step(const KdaHead& head, float* state, float* out) {
    float kq = 0.0f;
    for (int64_t i = 0; i < head.key_dim; ++i) kq = __builtin_fmaf(head.k[i], head.q[i], kq);

    for (int64_t col = 0; col < head.value_dim; ++col) {
        float pk = 0.0f;
        float pq = 0.0f;
        for (int64_t i = 0; i < head.key_dim; ++i) {
            const float decayed = head.decay[i] * state[i * head.value_dim + col];
            pk = __builtin_fmaf(head.k[i], decayed, pk);
            pq = __builtin_fmaf(head.q[i], decayed, pq);
        }
        const float u = head.beta * (head.v[col] - pk);
        for (int64_t i = 0; i < head.key_dim; ++i) {
            float& s = state[i * head.value_dim + col];
            s = __builtin_fmaf(head.k[i], u, head.decay[i] * s);
        }
        out[col] = __builtin_fmaf(kq, u, pq);
    }
}

}  // namespace waste::kernels::scalar
