// What every layer of one token needs, and the layers themselves.
//
// Each computes one sub-layer from `x`, the normed stream [hidden_size], into `out` [hidden_size], in the
// workspace's memory. Formulas: docs/model.md.
#pragma once

#include <cstdint>

#include "container/reader.h"
#include "engine/executor.h"
#include "engine/state.h"
#include "engine/trace.h"
#include "engine/weights.h"
#include "engine/workspace.h"

namespace waste::engine {

struct Step {
    const ModelConfig& config;
    const container::Container& container;
    Executor& executor;
    Workspace& workspace;
    int64_t position;  ///< of the token being computed, from 0
    Trace* trace;      ///< may be null
};

void kda_layer(Step& step, const KdaWeights& weights, KdaState& state, const float* x, float* out);
void mla_layer(Step& step, const MlaWeights& weights, MlaState& state, const float* x, float* out);
void mlp_layer(Step& step, const MlpWeights& weights, const float* x, float* out);
/// Fails where an expert cannot be read or is damaged.
Result<void> moe_layer(Step& step, const MoeWeights& weights, int64_t layer, const float* x, float* out);

/// The gated activation of an MLP: out[i] = act(gate[i]) * up[i].
void glu(const ModelConfig& config, const float* gate, const float* up, int64_t n, float* out);

}  // namespace waste::engine
