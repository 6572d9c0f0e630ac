#include "engine/state.h"

#include <algorithm>

namespace waste::engine {
namespace {

constexpr int64_t kFloat = sizeof(float);

int64_t ring_floats(const ModelConfig& c) {
    return (c.conv_kernel_size - 1) * c.kda_width();
}
int64_t head_state_floats(const ModelConfig& c) {
    return c.kda_width() * c.kda_head_dim;
}

}  // namespace

StateBytes state_bytes(const ModelConfig& c) {
    const int64_t kda_layers = c.kda_layer_count();
    return {kda_layers * head_state_floats(c) * kFloat, kda_layers * 3 * ring_floats(c) * kFloat,
            c.mla_layer_count() * (c.kv_lora_rank + c.qk_rope_head_dim) * kFloat};
}

Result<SequenceState> SequenceState::allocate(const ModelConfig& c, int64_t context_length) {
    SequenceState out;
    auto memory = Buffer::allocate(state_bytes(c).total(context_length) / kFloat, "sequence state");
    if (!memory) return pass(memory);
    out.memory_ = std::move(*memory);
    out.context_length = context_length;
    float* next = out.memory_.data();
    const auto take = [&next](int64_t floats) {
        float* p = next;
        next += floats;
        return p;
    };
    out.kda.resize(c.kda_layer.size(), KdaState{});
    out.mla.resize(c.kda_layer.size(), MlaState{});
    for (size_t layer = 0; layer < c.kda_layer.size(); layer++) {
        if (!c.kda_layer[layer]) continue;
        float* state = take(head_state_floats(c));
        float* q = take(ring_floats(c));
        float* k = take(ring_floats(c));
        out.kda[layer] = {state, q, k, take(ring_floats(c))};
    }
    out.fixed_floats_ = next - out.memory_.data();
    for (size_t layer = 0; layer < c.kda_layer.size(); layer++) {
        if (c.kda_layer[layer]) continue;
        float* latent = take(context_length * c.kv_lora_rank);
        out.mla[layer] = {latent, take(context_length * c.qk_rope_head_dim)};
    }
    return out;
}

void SequenceState::clear() {
    std::fill_n(memory_.data(), fixed_floats_, 0.0f);
    position = 0;
}

}  // namespace waste::engine
