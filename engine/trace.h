// A look inside a forward pass: dumps, golden tests and debugging hang on this and cost nothing without it.
#pragma once

#include <cstdint>
#include <span>

namespace waste::engine {

enum class TracePoint {
    attn_in,   ///< mixer input, after input_layernorm
    attn_out,  ///< mixer output
    ffn_in,    ///< MLP or MoE input, after post_attention_layernorm
    ffn_out,   ///< its output
    hidden,    ///< the stream the layer hands on
    final,     ///< input of lm_head; layer = num_hidden_layers
};

/// Called on the thread that runs the block, tokens in ascending order within a layer; spans are valid during the
/// call only. `position` is the token's in its sequence.
class Trace {
  public:
    virtual ~Trace() = default;
    virtual void on_vector(TracePoint point, int64_t layer, int64_t position,
                           std::span<const float> values) = 0;
    /// `ids`, `weights` and `margin` as kernels::route() gives them, from `scores` [experts]: sigmoids, without the
    /// bias that is added to choose.
    virtual void on_router(int64_t layer, int64_t position, std::span<const int32_t> ids,
                           std::span<const float> weights, float margin, std::span<const float> scores) = 0;
};

}  // namespace waste::engine
