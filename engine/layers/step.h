// What every layer of a block of tokens needs, and the layers themselves.
//
// Each computes one sub-layer from `x`, the normed stream [tokens][hidden_size], into `out`
// [tokens][hidden_size], in the workspace's memory. Formulas: docs/model.md.
#pragma once

#include <cstdint>

#include "container/reader.h"
#include "engine/executor.h"
#include "engine/expert_store.h"
#include "engine/look_ahead.h"
#include "engine/profile.h"
#include "engine/state.h"
#include "engine/trace.h"
#include "engine/weights.h"
#include "engine/workspace.h"

namespace waste::engine {

/// How KDA evaluates tokens that fill an aligned chunk of kernels::kKdaChunk positions: as chunks, or like all others
/// token by token. The results differ by rounding.
enum class KdaForm : uint8_t { chunks, tokens };

struct Step {
    const ModelConfig& config;
    const container::Container& container;
    ExpertStore& experts;
    LookAhead* look_ahead;  ///< null: none
    Executor& executor;
    Workspace& workspace;
    int64_t position;  ///< of the block's first token, from 0
    int64_t tokens;    ///< in the block, at least 1
    KdaForm form;
    Trace* trace;      ///< may be null
    Profile* profile;  ///< may be null
};

void kda_layer(Step& step, const KdaWeights& weights, KdaState& state, const float* x, float* out);
void mla_layer(Step& step, const MlaWeights& weights, MlaState& state, const float* x, float* out);
void mlp_layer(Step& step, const MlpWeights& weights, const float* x, float* out);
/// The experts of every token with their weights, into the workspace; what they are to work on, where the model has a
/// latent for it.
void route(Step& step, const MoeWeights& weights, int64_t layer, const float* x);
/// Guesses which experts another layer will choose for a single token, from its likely input x, and lets their reads
/// begin. Between route() and moe_layer(), which it leaves as they are.
void guess_experts(Step& step, const MoeWeights& weights, Guess when, const float* x);
/// After route(). Fails where an expert cannot be read or is damaged.
Result<void> moe_layer(Step& step, const MoeWeights& weights, class RoutedExperts& experts, const float* x,
                       float* out);

/// The gated activation of an MLP: out[i] = act(gate[i]) * up[i].
void glu(const Step& step, const float* gate, const float* up, int64_t n, float* out);

}  // namespace waste::engine
