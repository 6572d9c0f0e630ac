// The gated MLP: the dense layer and the shared experts.
#include "engine/layers/step.h"
#include "kernels/activation.h"

namespace waste::engine {

void glu(const ModelConfig& config, const float* gate, const float* up, int64_t n, float* out) {
    if (config.hidden_act == HiddenAct::situ) {
        kernels::situ_glu(gate, up, config.situ_beta, config.situ_linear_beta, n, out);
    } else {
        kernels::silu_glu(gate, up, n, out);
    }
}

void mlp_layer(Step& step, const MlpWeights& weights, const float* x, float* out) {
    Workspace& w = step.workspace;
    const int64_t width = weights.gate_proj.panels.rows;
    w.input.set(x, step.config.hidden_size);
    const Product in[] = {{&weights.gate_proj, &w.input, w.mlp_gate}, {&weights.up_proj, &w.input, w.mlp_up}};
    step.executor.multiply(in);
    glu(step.config, w.mlp_gate, w.mlp_up, width, w.mlp_gate);
    w.input.set(w.mlp_gate, width);
    const Product down{&weights.down_proj, &w.input, out};
    step.executor.multiply({&down, 1});
}

}  // namespace waste::engine
