// What a model needs of memory: a pure function of its config, its sizes on the drive, the shape of a session (context,
// tokens a block, threads) and the memory at hand. `waste plan` prints these rows, and a session allocates exactly
// those that are its own (states, latents, activations). run_plan.h says how it runs with less, or with more.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "container/manifest.h"
#include "engine/config.h"
#include "engine/workspace.h"

namespace waste::engine {

/// A model on the drive, converted or not yet.
struct ContainerSizes {
    uint64_t trunk_bytes;          ///< trunk.bin
    uint64_t embedding_bytes;      ///< of trunk.bin, padding included; never resident
    uint64_t embedding_row_bytes;  ///< what a token reads of it
    uint64_t expert_bytes;         ///< all bank files
    uint64_t record_bytes;         ///< the largest expert record
    uint64_t record_count;         ///< experts of all banks
    /// Of trunk.bin, padding included: what each layer takes, one range of the file, and what stands behind the last
    /// one (output mix, norm, lm_head).
    std::vector<uint64_t> layer_bytes;
    uint64_t head_bytes;

    uint64_t total_bytes() const { return trunk_bytes + expert_bytes; }
};
ContainerSizes container_sizes(uint64_t trunk_bytes, std::span<const container::TensorEntry> tensors,
                               std::span<const container::BankEntry> banks);

enum class Fit {
    unknown,       ///< the machine's memory is not known
    comfortable,   ///< the floor and at least one token's experts, in 7/8 of the memory
    tight,         ///< the floor and little more
    does_not_fit,  ///< not even the floor
};

struct Plan {
    int64_t context_length;
    // What must be there
    uint64_t trunk_bytes;  ///< mapped; without the embedding, of which a token reads one row
    uint64_t kda_state_bytes;
    uint64_t conv_ring_bytes;
    uint64_t mla_latent_bytes;
    uint64_t checkpoint_bytes;  ///< of as many as the session keeps
    uint64_t activation_bytes;
    uint64_t least_cache_bytes;  ///< arena of two layers' choice of experts: one in use, one arriving
    uint64_t program_bytes;      ///< the program itself, its tables of experts and of tokens included
    uint64_t floor_bytes;        ///< sum of the above
    // What is worth having
    uint64_t working_set_bytes;  ///< the experts of one token, over all layers
    int working_sets;            ///< how many of them the recommendation adds to the floor: 3 to 0
    uint64_t cache_bytes;        ///< recommended, least_cache_bytes included
    uint64_t recommended_bytes;  ///< floor with the recommended cache
    bool all_experts_fit;        ///< every expert can stay in memory
    // What a token reads
    uint64_t trunk_read_bytes;   ///< from memory
    uint64_t expert_read_bytes;  ///< from the drive, if nothing is cached
    // Against this machine
    Fit fit;
    uint64_t missing_bytes;   ///< what the floor lacks
    int64_t longest_context;  ///< whose floor fits; 0: not even an empty one, or the memory is not known
};

/// The part of the memory that a plan fills.
constexpr uint64_t safe_part(uint64_t usable_bytes) {
    return usable_bytes - usable_bytes / 8;
}

/// What an expert takes in memory: the largest record, in whole blocks of 4 KiB.
uint64_t slot_bytes(const ContainerSizes& sizes);
/// Of an arena of `slots` slots, in whole huge pages.
uint64_t arena_bytes(uint64_t slots, uint64_t slot_bytes);

/// Sums stop at the largest number instead of wrapping: configs are untrusted.
Plan plan(const ModelConfig& config, const ContainerSizes& sizes, const SessionShape& shape,
          std::optional<uint64_t> usable_bytes);

}  // namespace waste::engine
