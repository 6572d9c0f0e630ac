// The activations of one token in flight: allocated once per session, reused by every layer.
//
// Dimension letters: D hidden_size, C = heads x head_dim of KDA, H attention heads of MLA, R kv_lora_rank,
// E experts, k experts per token, I moe_intermediate_size, L expert input size.
#pragma once

#include <cstdint>
#include <vector>

#include "engine/buffer.h"
#include "engine/config.h"
#include "engine/executor.h"

namespace waste::engine {

struct Workspace {
    // Residual stream
    float* stream;     ///< [D] running sum (`prefix` under Attention Residuals)
    float* snapshots;  ///< [blocks][D]
    float* mixed;      ///< [D] input of a sub-layer before its norm
    float* normed;     ///< [D]
    float* sublayer;   ///< [D] output of a sub-layer
    // KDA
    float *q, *k, *v;  ///< [C]
    float* low_rank;   ///< [2][head_dim]: f_a and g_a outputs
    float* decay;      ///< [C]
    float* beta;       ///< [KDA heads]
    float* gate;       ///< [max(C, H v_head_dim)] output gate of either mixer
    float* mixer_out;  ///< [max(C, H v_head_dim)] what o_proj multiplies
    // MLA
    float* q_low_rank;      ///< [q_lora_rank]
    float* mla_query;       ///< [H][nope + rope]
    float* kv;              ///< [R + rope]
    float* query_latent;    ///< [H][R]
    float* context_latent;  ///< [H][R]
    float* mla_scratch;     ///< [H][kMlaBlock + R]
    // Feed-forward
    float* router_logits;            ///< [E]
    float* router_scratch;           ///< [2 E]
    float* router_weights;           ///< [k]
    float* expert_input;             ///< [L] the latent, where there is one
    float *expert_gate, *expert_up;  ///< [k][I]
    float* expert_out;               ///< [k][L]
    float* expert_sum;               ///< [L]
    float *mlp_gate, *mlp_up;        ///< [widest dense or shared MLP]
    float* mlp_out;                  ///< [D]
    float* logits;                   ///< [vocab_size]

    Input input;                          ///< for one vector at a time
    std::vector<Input> inputs;            ///< [max(H, k)] for a vector per head or expert
    std::vector<Matrix> expert_matrices;  ///< [3 k] gate, up, down of the chosen experts
    std::vector<int32_t> expert_ids;      ///< [k]
    std::vector<Product> products;        ///< room for every region's products

    static Result<Workspace> allocate(const ModelConfig& config);
    static int64_t bytes(const ModelConfig& config);

  private:
    Buffer memory_;
};

}  // namespace waste::engine
