// Everything a forward pass computed, in one safetensors file, so that any two implementations can be
// compared.
//
// Names and shapes (T tokens, L layers, M MoE layers in order; layer numbers 0-based; NAME is the sequence's
// name):
//   NAME.ids [T] I32, NAME.logits [T, vocab]
//   NAME.{hidden,attn_in,attn_out,ffn_in,ffn_out}_last [L, hidden], NAME.final_last [hidden]: last position
//   NAME.router_ids [M, T, k] I32, NAME.router_weights [M, T, k], NAME.router_margin [M, T]
//   NAME.kda_state.l [H, K, V], NAME.conv_state.l.{q,k,v} [C, taps-1] oldest first: after the last token
//   NAME.mla_latent.l [T, kv_lora_rank], NAME.mla_rope.l [T, qk_rope_head_dim]
//   NAME.greedy [steps] I32, NAME.greedy_logits [steps, vocab], NAME.greedy_margin [steps]: greedy
//   continuation
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "container/safetensors.h"
#include "engine/session.h"

namespace waste::engine {

/// `session` must be empty and hold ids.size() + greedy_steps positions.
Result<std::vector<container::NamedTensor>> dump_sequence(const Model& model, Session& session,
                                                          std::span<const int32_t> ids,
                                                          const std::string& name, int64_t greedy_steps);

}  // namespace waste::engine
