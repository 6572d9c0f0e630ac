#include "engine/plan.h"

#include <algorithm>

#include "container/memory.h"
#include "engine/checkpoints.h"
#include "engine/saturate.h"
#include "engine/state.h"
#include "engine/tensor_list.h"

namespace waste::engine {
namespace {

constexpr int kMostWorkingSets = 3;

/// Code and heap besides what the rows say; a run of a small model has less than half of it.
constexpr uint64_t kProgramBytes = uint64_t{12} << 20;
/// An expert's entry in the table of its bank and in the cache's index.
constexpr uint64_t kTableBytes = 64;
/// A token's place in the vocabulary and its hash table.
constexpr uint64_t kTokenBytes = 96;

uint64_t count_of(int64_t count) {
    return static_cast<uint64_t>(count);
}

/// The largest cache the machine has room for: 3, 2 or 1 working sets over the floor, else the floor alone.
void recommend_cache(Plan& plan, const ContainerSizes& sizes, uint64_t least_slots, uint64_t token_slots,
                     std::optional<uint64_t> usable_bytes) {
    const uint64_t room = usable_bytes ? safe_part(*usable_bytes) : UINT64_MAX;
    const uint64_t before_cache = plan.floor_bytes - plan.least_cache_bytes;
    const auto cache_of = [&](int working_sets) {
        const uint64_t wanted = add(least_slots, multiply(token_slots, count_of(working_sets)));
        return arena_bytes(std::min(wanted, sizes.record_count), slot_bytes(sizes));
    };
    plan.working_sets = kMostWorkingSets;
    while (plan.working_sets > 0 && add(before_cache, cache_of(plan.working_sets)) > room) {
        plan.working_sets--;
    }
    plan.cache_bytes = cache_of(plan.working_sets);
    plan.recommended_bytes = add(before_cache, plan.cache_bytes);
    plan.all_experts_fit = usable_bytes && add(before_cache, sizes.expert_bytes) <= room;
}

void judge(Plan& plan, const ModelConfig& config, uint64_t per_position,
           std::optional<uint64_t> usable_bytes) {
    if (!usable_bytes) return;
    const uint64_t usable = *usable_bytes;
    const uint64_t without_latents = plan.floor_bytes - plan.mla_latent_bytes;
    if (without_latents < usable) {
        const uint64_t positions = per_position > 0 ? (usable - without_latents) / per_position : UINT64_MAX;
        plan.longest_context = static_cast<int64_t>(std::min(positions, count_of(config.max_context)));
    }
    if (plan.floor_bytes > usable) {
        plan.fit = Fit::does_not_fit;
        plan.missing_bytes = plan.floor_bytes - usable;
    } else {
        plan.fit = plan.working_sets > 0 ? Fit::comfortable : Fit::tight;
    }
}

}  // namespace

uint64_t slot_bytes(const ContainerSizes& sizes) {
    return round_up(sizes.record_bytes, container::kAlignment);
}

uint64_t arena_bytes(uint64_t slots, uint64_t slot_bytes) {
    return round_up(multiply(slots, slot_bytes), container::kHugePageBytes);
}

ContainerSizes container_sizes(uint64_t trunk_bytes, std::span<const container::TensorEntry> tensors,
                               std::span<const container::BankEntry> banks) {
    ContainerSizes sizes{};
    sizes.trunk_bytes = trunk_bytes;
    for (const container::TensorEntry& tensor : tensors) {
        const uint64_t bytes = round_up(tensor.bytes, container::kAlignment);
        if (tensor.name == kEmbeddingName) {
            sizes.embedding_bytes = bytes;
            sizes.embedding_row_bytes = tensor.bytes / count_of(std::max<int64_t>(1, tensor.shape.front()));
        } else if (const auto layer = layer_of_tensor(tensor.name, static_cast<int64_t>(tensors.size()))) {
            const auto index = static_cast<size_t>(*layer);
            if (sizes.layer_bytes.size() <= index) sizes.layer_bytes.resize(index + 1);
            sizes.layer_bytes[index] = add(sizes.layer_bytes[index], bytes);
        } else {
            sizes.head_bytes = add(sizes.head_bytes, bytes);
        }
    }
    for (const container::BankEntry& bank : banks) {
        sizes.expert_bytes = add(sizes.expert_bytes, bank.bytes);
        sizes.record_bytes = std::max(sizes.record_bytes, bank.shape.record_bytes());
        sizes.record_count = add(sizes.record_count, count_of(bank.shape.experts));
    }
    return sizes;
}

Plan plan(const ModelConfig& config, const ContainerSizes& sizes, const SessionShape& shape,
          std::optional<uint64_t> usable_bytes) {
    const StateBytes state = state_bytes(config);
    const uint64_t chosen = count_of(config.num_experts_per_token);
    const uint64_t token_slots = multiply(chosen, count_of(config.moe_layer_count()));
    const uint64_t least_slots = std::min(multiply(2, chosen), sizes.record_count);
    Plan out{};
    out.context_length = shape.context_length;
    out.trunk_bytes = sizes.trunk_bytes - std::min(sizes.embedding_bytes, sizes.trunk_bytes);
    out.kda_state_bytes = count_of(state.kda);
    out.conv_ring_bytes = count_of(state.conv);
    out.mla_latent_bytes = multiply(count_of(state.mla_per_position), count_of(shape.context_length));
    out.checkpoint_bytes = multiply(count_of(shape.checkpoints), count_of(Checkpoints::bytes(config)));
    out.activation_bytes = count_of(Workspace::bytes(config, shape));
    out.least_cache_bytes = arena_bytes(least_slots, slot_bytes(sizes));
    out.program_bytes = add(add(kProgramBytes, multiply(kTableBytes, sizes.record_count)),
                            multiply(kTokenBytes, count_of(config.vocab_size)));
    for (const uint64_t bytes :
         {out.trunk_bytes, out.kda_state_bytes, out.conv_ring_bytes, out.mla_latent_bytes,
          out.checkpoint_bytes, out.activation_bytes, out.least_cache_bytes, out.program_bytes}) {
        out.floor_bytes = add(out.floor_bytes, bytes);
    }
    out.working_set_bytes = multiply(token_slots, sizes.record_bytes);
    out.trunk_read_bytes = add(out.trunk_bytes, sizes.embedding_row_bytes);
    out.expert_read_bytes = out.working_set_bytes;
    recommend_cache(out, sizes, least_slots, token_slots, usable_bytes);
    judge(out, config, count_of(state.mla_per_position), usable_bytes);
    return out;
}

}  // namespace waste::engine
