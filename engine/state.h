// Everything one sequence carries from token to token. Sizes are a pure function of config and context, so
// that the plan prints exactly what is allocated here.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/buffer.h"
#include "engine/config.h"

namespace waste::engine {

/// One KDA layer: S [heads][key][value], row-major by key, and the last taps-1 inputs of the three short
/// convolutions as rings [taps-1][width]. Row position % (taps-1) is the oldest.
struct KdaState {
    float* state;
    float* q_ring;
    float* k_ring;
    float* v_ring;
};

/// One MLA layer: the normed latent [context][kv_lora_rank] and the shared key part
/// [context][qk_rope_head_dim].
struct MlaState {
    float* latent;
    float* rope;
};

struct StateBytes {
    int64_t kda;   ///< all KDA layers
    int64_t conv;  ///< all conv rings
    int64_t mla_per_position;
    int64_t total(int64_t context_length) const { return kda + conv + mla_per_position * context_length; }
};
StateBytes state_bytes(const ModelConfig& config);

class SequenceState {
  public:
    static Result<SequenceState> allocate(const ModelConfig& config, int64_t context_length);

    /// Indexed by layer; the other kind's entry is null.
    std::vector<KdaState> kda;
    std::vector<MlaState> mla;
    int64_t position = 0;  ///< tokens consumed
    int64_t context_length = 0;

    /// Back to the empty sequence.
    void clear();
    /// What a token replaces instead of appending to it: states and rings of all KDA layers in their order, as many
    /// floats each.
    std::span<const float> recurrent() const { return {memory_.data(), static_cast<size_t>(fixed_floats_)}; }
    std::span<float> recurrent() { return {memory_.data(), static_cast<size_t>(fixed_floats_)}; }

  private:
    Buffer memory_;
    int64_t fixed_floats_ = 0;  ///< the part that must be zero at the start
};

}  // namespace waste::engine
