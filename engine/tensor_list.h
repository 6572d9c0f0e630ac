// Every tensor a model consists of: the one place that knows their names, shapes and roles.
//
// The converter walks this list to check a release and to write a container; the engine walks it to bind one.
// Names on both sides: `name` in the container is the release's without prefix, "model." and ".weight".
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/config.h"

namespace waste::engine {

/// How a tensor is stored; the recipe of a conversion maps roles to formats.
enum class Role {
    embedding,    ///< rows, as released; one row is read per token
    vector,       ///< rows, f32
    matrix,       ///< panels; the bulk of the trunk
    fine_matrix,  ///< panels; narrow or sensitive: low-rank projections, beta, latent down/up, lm_head
    router,       ///< panels; never below the precision it was released in
    k_absorb,     ///< panels, a batch of heads [kv_lora_rank][qk_nope_head_dim]: kv_b's key rows, transposed
    v_up,         ///< panels, a batch of heads [v_head_dim][kv_lora_rank]: kv_b's value rows
};

struct TensorSpec {
    std::string name;    ///< in the container
    std::string source;  ///< in the release, prefix included
    Role role;
    std::vector<int64_t> shape;                       ///< in the container
    std::vector<std::vector<int64_t>> source_shapes;  ///< any of these is accepted
    int64_t layer;  ///< 0-based; -1 before the layers, num_hidden_layers after them
};

/// The trunk in execution order: embedding, layers, output. A kv_b_proj appears twice, as k_absorb and v_up.
std::vector<TensorSpec> trunk_tensors(const ModelConfig& config);

inline constexpr std::string_view kEmbeddingName = "embed_tokens", kHeadName = "lm_head";
/// The layer of "layers.7.self_attn.q_proj"; nothing for what is of no layer. Names are untrusted: a layer from `layers`
/// on is none.
std::optional<int64_t> layer_of_tensor(std::string_view name, int64_t layers);

/// Tensors a release carries although the graph never reads them (layer 0's attention-residual pair).
std::vector<std::string> unused_tensors(const ModelConfig& config);

/// "language_model.model.layers.7.block_sparse_moe.experts.12.w1": append ".weight", or ".weight_packed" and
/// ".weight_scale". w1 is gate, w3 up, w2 down.
std::string expert_tensor(const ModelConfig& config, int64_t layer, int64_t expert, const char* which);

}  // namespace waste::engine
