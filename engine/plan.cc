#include "engine/plan.h"

#include <algorithm>
#include <string_view>

#include "engine/state.h"

namespace waste::engine {
namespace {

constexpr int kMostWorkingSets = 3;
constexpr std::string_view kEmbeddingName = "embed_tokens";

uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

uint64_t count_of(int64_t count) {
    return static_cast<uint64_t>(count);
}

/// The largest cache the machine has room for: 3, 2 or 1 working sets over the floor, else the floor alone.
void recommend_cache(Plan& plan, uint64_t expert_bytes, std::optional<uint64_t> usable_bytes) {
    const uint64_t room = usable_bytes ? safe_part(*usable_bytes) : UINT64_MAX;
    const uint64_t before_cache = plan.floor_bytes - plan.least_cache_bytes;
    const auto cache_of = [&](int working_sets) {
        const uint64_t wanted =
            add(plan.least_cache_bytes, multiply(plan.working_set_bytes, count_of(working_sets)));
        return std::min(wanted, expert_bytes);
    };
    plan.working_sets = kMostWorkingSets;
    while (plan.working_sets > 0 && add(before_cache, cache_of(plan.working_sets)) > room) {
        plan.working_sets--;
    }
    plan.cache_bytes = cache_of(plan.working_sets);
    plan.recommended_bytes = add(before_cache, plan.cache_bytes);
    plan.all_experts_fit = usable_bytes && add(before_cache, expert_bytes) <= room;
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

ContainerSizes container_sizes(uint64_t trunk_bytes, std::span<const container::TensorEntry> tensors,
                               std::span<const container::BankEntry> banks) {
    ContainerSizes sizes{};
    sizes.trunk_bytes = trunk_bytes;
    for (const container::TensorEntry& tensor : tensors) {
        if (tensor.name != kEmbeddingName) continue;
        sizes.embedding_bytes =
            (tensor.bytes + container::kAlignment - 1) / container::kAlignment * container::kAlignment;
        sizes.embedding_row_bytes = tensor.bytes / count_of(std::max<int64_t>(1, tensor.shape.front()));
    }
    for (const container::BankEntry& bank : banks) {
        sizes.expert_bytes = add(sizes.expert_bytes, bank.bytes);
        sizes.record_bytes = std::max(sizes.record_bytes, bank.shape.record_bytes());
    }
    return sizes;
}

Plan plan(const ModelConfig& config, const ContainerSizes& sizes, const WorkspaceShape& shape,
          std::optional<uint64_t> usable_bytes) {
    const StateBytes state = state_bytes(config);
    const uint64_t chosen_bytes = multiply(count_of(config.num_experts_per_token), sizes.record_bytes);
    Plan out{};
    out.context_length = shape.context_length;
    out.trunk_bytes = sizes.trunk_bytes - std::min(sizes.embedding_bytes, sizes.trunk_bytes);
    out.kda_state_bytes = count_of(state.kda);
    out.conv_ring_bytes = count_of(state.conv);
    out.mla_latent_bytes = multiply(count_of(state.mla_per_position), count_of(shape.context_length));
    out.activation_bytes = count_of(Workspace::bytes(config, shape));
    out.least_cache_bytes = std::min(multiply(2, chosen_bytes), sizes.expert_bytes);
    for (const uint64_t bytes : {out.trunk_bytes, out.kda_state_bytes, out.conv_ring_bytes,
                                 out.mla_latent_bytes, out.activation_bytes, out.least_cache_bytes}) {
        out.floor_bytes = add(out.floor_bytes, bytes);
    }
    out.working_set_bytes = multiply(chosen_bytes, count_of(config.moe_layer_count()));
    out.trunk_read_bytes = add(out.trunk_bytes, sizes.embedding_row_bytes);
    out.expert_read_bytes = out.working_set_bytes;
    recommend_cache(out, sizes.expert_bytes, usable_bytes);
    judge(out, config, count_of(state.mla_per_position), usable_bytes);
    return out;
}

}  // namespace waste::engine
