// The gated MLP: the dense layer and the shared experts.
#include <algorithm>

#include "engine/layers/step.h"

namespace waste::engine {

void glu(const Step& step, const float* gate, const float* up, int64_t n, float* out) {
    const ModelConfig& c = step.config;
    const kernels::ActivationKernels& activation = *step.executor.kernels().activation;
    if (c.hidden_act == HiddenAct::situ) {
        activation.situ_glu(gate, up, c.situ_beta, c.situ_linear_beta, n, out);
    } else {
        activation.silu_glu(gate, up, n, out);
    }
}

void mlp_layer(Step& step, const MlpWeights& weights, const float* x, float* out) {
    const Timed timed(step.profile, Component::mlp);
    // Elements of the activation in a task.
    constexpr int64_t kPiece = 4096;
    Workspace& w = step.workspace;
    const int64_t hidden = step.config.hidden_size, width = weights.gate_proj.panels.rows;
    const int64_t tile = mlp_tile(step.config);
    for (int64_t begin = 0; begin < step.tokens; begin += tile) {
        const int64_t tokens = std::min(tile, step.tokens - begin), elements = tokens * width;
        w.input.set(x + begin * hidden, hidden, hidden, tokens);
        const Product in[] = {{&weights.gate_proj, &w.input, w.mlp_gate, width},
                              {&weights.up_proj, &w.input, w.mlp_up, width}};
        step.executor.multiply(in);
        step.executor.pool().run((elements + kPiece - 1) / kPiece, [&](int64_t piece) {
            const int64_t at = piece * kPiece;
            glu(step, w.mlp_gate + at, w.mlp_up + at, std::min(kPiece, elements - at), w.mlp_gate + at);
        });
        w.input.set(w.mlp_gate, width, width, tokens);
        const Product down{&weights.down_proj, &w.input, out + begin * hidden, hidden};
        step.executor.multiply({&down, 1});
    }
}

}  // namespace waste::engine
