// The activations of a block of tokens in flight: allocated once per session, reused by every layer.
//
// Dimension letters: T block_tokens, D hidden_size, C = heads x head_dim of KDA, H attention heads of MLA,
// R kv_lora_rank, E experts, k experts per token, I moe_intermediate_size, L expert input size. Rows of a
// block lie back to back: token t of a [T][n] array is at t * n.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "engine/buffer.h"
#include "engine/config.h"
#include "engine/executor.h"
#include "engine/expert_store.h"

namespace waste::engine {

/// Most tokens of a block.
inline constexpr int64_t kMostBlockTokens = 4096;

/// Tokens of a block that go through attention over latents, a dense MLP, an expert or lm_head together: what is
/// wide there would take more memory than the whole rest of a large block.
inline constexpr int64_t kMlaTile = 64, kExpertTile = 48, kHeadTile = 8;
/// The same for a dense MLP, whose intermediate size may be many times the hidden size.
int64_t mlp_tile(const ModelConfig& config);

/// What decides on a session's memory.
struct SessionShape {
    int64_t block_tokens;  ///< most tokens computed together
    int64_t context_length;
    int threads;
    int checkpoints = 0;  ///< kept beside the workspace
};

/// Some of an expert's tokens: rows [begin, begin + count) of `pairs`.
struct ExpertTask {
    int32_t index;  ///< of the expert in expert_order
    int64_t begin;
    int64_t count;
};

struct Workspace {
    // Residual stream
    float* stream;     ///< [T][D] running sum (`prefix` under Attention Residuals)
    float* snapshots;  ///< [blocks][T][D]
    float* mixed;      ///< [T][D] input of a sub-layer before its norm
    float* normed;     ///< [T][D]
    float* sublayer;   ///< [T][D] output of a sub-layer
    float* logits;     ///< [kHeadTile][vocab_size]
    // The mixers and the feed-forward layers use the same memory in turn. Both mixers:
    float* gate;       ///< [T][max(C, H v_head_dim)] output gate
    float* mixer_out;  ///< [T][max(C, H v_head_dim)] what o_proj multiplies
    // KDA
    float *q, *k, *v;      ///< [T][C]
    float *f_low, *g_low;  ///< [T][head_dim]: f_a and g_a outputs
    float* decay;          ///< [T][C] raw gate
    float* beta;           ///< [T][KDA heads] logits
    // MLA
    float* q_low_rank;        ///< [T][q_lora_rank]
    float* mla_query;         ///< [T][H][nope + rope]
    float* kv;                ///< [T][R + rope]
    float* query_latent;      ///< [kMlaTile][H][R]
    float* context_latent;    ///< [kMlaTile][H][R]
    int64_t partials;         ///< partial softmaxes there is room for, all heads each
    float* partial_maximum;   ///< [partials][H]
    float* partial_sum;       ///< [partials][H]
    float* partial_weighted;  ///< [partials][H][R]
    // Feed-forward
    float* router_scores;            ///< [T][E]
    float* router_choice;            ///< [T][E]
    float* router_weights;           ///< [T][k]
    float* router_margins;           ///< [T]
    float* expert_input;             ///< [T][L] the latent, where there is one
    float *expert_gate, *expert_up;  ///< [k][I], of a single token
    float* expert_out;               ///< [T k][L], in the order of `pairs`
    float* expert_sum;               ///< [T][L]
    float *mlp_gate, *mlp_up;        ///< [mlp_tile][widest dense or shared MLP]
    float* mlp_out;                  ///< [T][D]

    Input input;                ///< for a block of wide vectors
    Input low_rank[2];          ///< for blocks of f_low, g_low or q_low_rank
    std::vector<Input> inputs;  ///< [max(H, k)] for a tile per head or a vector per expert

    std::vector<Matrix> expert_matrices;            ///< [3 k] gate, up, down of a single token's experts
    std::vector<int32_t> expert_ids;                ///< [T][k]
    std::vector<int64_t> expert_first;              ///< [E + 1] into `pairs`
    std::vector<int64_t> pairs;                     ///< [T k] token x k + rank, ordered by expert, then token
    std::vector<int64_t> pair_row;                  ///< [T k] where in `pairs` a pair is
    std::vector<ExpertTask> expert_tasks;           ///< with room for all
    std::vector<int32_t> expert_order;              ///< [E] those of a block, as they were asked for
    std::vector<ExpertStore::Lease> expert_leases;  ///< [E] in that order
    std::unique_ptr<std::atomic<int32_t>[]> tasks_left;  ///< [E] in that order
    std::vector<int32_t> expert_waiting;                 ///< [k] of a single token's, first those computed
    std::vector<Product> products;                       ///< room for every region's products

    std::vector<float*> scratch;  ///< [threads], each for what one task needs

    static Result<Workspace> allocate(const ModelConfig& config, const SessionShape& shape);
    static int64_t bytes(const ModelConfig& config, const SessionShape& shape);

  private:
    Buffer memory_;
};

/// The scratch of an expert task: kExpertTile rows of its input, of gate and up, and of what down multiplies.
struct ExpertScratch {
    Input input;
    float* rows;       ///< [kExpertTile][L], for f32
    float *gate, *up;  ///< [kExpertTile][I]
    Input inner;

    ExpertScratch(const ModelConfig& config, float* scratch);
    static int64_t floats(const ModelConfig& config);
};

}  // namespace waste::engine
