#include "engine/run_plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string>

#include "container/memory.h"
#include "engine/saturate.h"
#include "kernels/kda.h"

namespace waste::engine {
namespace {

/// A way to hold the trunk: layers [0, mapped_layers) and maybe the head mapped, the rest through two buffers.
struct TrunkChoice {
    int64_t mapped_layers;
    bool head_mapped;
    uint64_t mapped_bytes;
    uint64_t buffer_bytes;
    uint64_t drive_bytes;

    uint64_t memory_bytes() const { return add(mapped_bytes, arena_bytes(2, buffer_bytes)); }
};

/// Every choice there is, from all mapped to nothing. Which layers are mapped does not matter to what a token reads,
/// so the first ones are. The head is a choice of its own: where it is larger than any layer, to map it takes less
/// memory than the buffers that could hold it.
std::vector<TrunkChoice> trunk_choices(const ContainerSizes& sizes, uint64_t trunk_bytes) {
    const auto layers = static_cast<int64_t>(sizes.layer_bytes.size());
    std::vector<TrunkChoice> out{{layers, true, trunk_bytes, 0, 0}};
    uint64_t mapped = 0, streamed = 0, largest = 0;
    for (const uint64_t bytes : sizes.layer_bytes) mapped = add(mapped, bytes);
    for (int64_t first = layers; first >= 0; first--) {
        if (first < layers) {
            const uint64_t bytes = sizes.layer_bytes[static_cast<size_t>(first)];
            mapped = subtract(mapped, bytes);
            streamed = add(streamed, bytes);
            largest = std::max(largest, bytes);
            out.push_back({first, true, add(mapped, sizes.head_bytes),
                           round_up(largest, container::kAlignment), streamed});
        }
        out.push_back({first, false, mapped,
                       round_up(std::max(largest, sizes.head_bytes), container::kAlignment),
                       add(streamed, sizes.head_bytes)});
    }
    return out;
}

/// The choice that reads least from the drive in `room` bytes, or else the one that takes least memory.
TrunkChoice choose_trunk(const std::vector<TrunkChoice>& choices, uint64_t room) {
    const TrunkChoice* best = &choices.front();
    for (const TrunkChoice& choice : choices) {
        const uint64_t memory = choice.memory_bytes(), best_memory = best->memory_bytes();
        const bool fits = memory <= room, best_fits = best_memory <= room;
        const bool better = fits && best_fits   ? choice.drive_bytes < best->drive_bytes
                            : fits || best_fits ? fits
                                                : memory < best_memory;
        if (better) best = &choice;
    }
    return *best;
}

/// What a run takes however weights are held.
uint64_t fixed_bytes(const Plan& needs) {
    uint64_t sum = needs.program_bytes;
    for (const uint64_t bytes : {needs.kda_state_bytes, needs.conv_ring_bytes, needs.mla_latent_bytes,
                                 needs.checkpoint_bytes, needs.activation_bytes}) {
        sum = add(sum, bytes);
    }
    return sum;
}

uint64_t least_bytes(const Plan& needs, const std::vector<TrunkChoice>& choices) {
    const uint64_t trunk = choose_trunk(choices, 0).memory_bytes();
    return add(add(fixed_bytes(needs), trunk), needs.least_cache_bytes);
}

/// The least budget for a session of another shape.
uint64_t least_for(const ModelConfig& config, const ContainerSizes& sizes, const SessionShape& shape) {
    const Plan needs = plan(config, sizes, shape, std::nullopt);
    return least_bytes(needs, trunk_choices(sizes, needs.trunk_bytes));
}

/// The longest context that `limit` has room for; 0: none.
int64_t longest_context(const ModelConfig& config, const ContainerSizes& sizes, SessionShape shape,
                        uint64_t limit) {
    int64_t fits = 0, too_long = shape.context_length;
    while (too_long - fits > 1) {
        shape.context_length = fits + (too_long - fits) / 2;
        (least_for(config, sizes, shape) <= limit ? fits : too_long) = shape.context_length;
    }
    return fits;
}

std::string size_text(uint64_t bytes) {
    constexpr double kMiB = 1 << 20, kGiB = 1 << 30;
    const auto value = static_cast<double>(bytes);
    if (value < kMiB) return fmt::format("{} B", bytes);
    return value < kGiB ? fmt::format("{:.1f} MiB", value / kMiB) : fmt::format("{:.2f} GiB", value / kGiB);
}

/// Rounded up, so that what is printed suffices.
std::string budget_option(uint64_t bytes) {
    constexpr uint64_t kMiB = 1 << 20;
    return fmt::format("--budget {}MiB", bytes / kMiB + (bytes % kMiB != 0));
}

/// Names what the least is, what there is, and the ways to get under.
tl::unexpected<Error> too_little(const ModelConfig& config, const ContainerSizes& sizes,
                                 const SessionShape& shape, uint64_t least, uint64_t limit, bool asked) {
    std::vector<std::string> ways;
    ways.push_back(asked ? budget_option(least)
                         : fmt::format("a machine or control group with {}", size_text(least)));
    const int64_t context = longest_context(config, sizes, shape, limit);
    if (context > 0) ways.push_back(fmt::format("--ctx {} or less", context));
    SessionShape small = shape;
    small.block_tokens = kernels::kKdaChunk;
    if (small.block_tokens < shape.block_tokens) {
        const uint64_t small_least = least_for(config, sizes, small);
        const int64_t with_block = longest_context(config, sizes, small, limit);
        ways.push_back(fmt::format("--block {} (takes {} less{})", small.block_tokens,
                                   size_text(subtract(least, small_least)),
                                   small_least <= limit ? ""
                                   : with_block > 0     ? fmt::format("; with --ctx {} it fits", with_block)
                                                        : ", not enough alone"));
    }
    ways.emplace_back("a trunk or experts converted to fewer bits");
    return fail(ErrorKind::capacity, asked ? "--budget" : "memory",
                fmt::format("a context of {} in blocks of {} tokens needs {} at the least, and {} {}; what "
                            "helps: {}",
                            shape.context_length, shape.block_tokens, size_text(least),
                            asked ? "the budget is" : "this machine gives the process", size_text(limit),
                            fmt::join(ways, "; ")));
}

struct Budget {
    uint64_t bytes;
    BudgetSource source;
};

Budget choose_budget(std::optional<uint64_t> asked, const std::optional<MemoryFacts>& memory,
                     uint64_t least) {
    if (asked) {
        if (memory && memory->usable_bytes < *asked) return {memory->usable_bytes, BudgetSource::usable};
        return {*asked, BudgetSource::asked};
    }
    if (!memory) return {UINT64_MAX, BudgetSource::unknown};
    const uint64_t safe = safe_bytes(*memory);
    if (safe < least) return {std::min(least, memory->usable_bytes), BudgetSource::least};
    const uint64_t idle = subtract(safe_part(memory->usable_bytes), memory->neighbour_bytes);
    return {safe, safe < idle ? BudgetSource::available : BudgetSource::safe};
}

/// Gives the trunk all it can use and the experts the rest: a byte of trunk is read for every token, a byte of a
/// slot only for some.
void hold_weights(RunPlan& run, const ContainerSizes& sizes, const std::vector<TrunkChoice>& choices) {
    const uint64_t fixed = fixed_bytes(run.needs);
    const uint64_t everything = add(add(fixed, run.needs.trunk_bytes), sizes.expert_bytes);
    const bool fits = everything <= run.budget_bytes;
    const uint64_t room = subtract(run.budget_bytes, fixed);
    const TrunkChoice trunk =
        fits ? choices.front() : choose_trunk(choices, subtract(room, run.needs.least_cache_bytes));
    run.trunk = trunk.drive_bytes == 0 ? Held::mapped : Held::streamed;
    run.mapped_layers = trunk.mapped_layers;
    run.head_mapped = trunk.head_mapped;
    run.mapped_trunk_bytes = trunk.mapped_bytes;
    run.stream_buffer_bytes = trunk.buffer_bytes;
    run.trunk_stream_bytes = arena_bytes(2, trunk.buffer_bytes);
    run.trunk_drive_bytes = trunk.drive_bytes;
    run.slot_bytes = slot_bytes(sizes);
    run.experts = fits ? Held::mapped : Held::streamed;
    run.expert_bytes = sizes.expert_bytes;
    if (!fits) {
        const uint64_t left = subtract(room, trunk.memory_bytes());
        const uint64_t whole_pages = left / container::kHugePageBytes * container::kHugePageBytes;
        run.cache_slots = run.slot_bytes > 0 ? std::min(sizes.record_count, whole_pages / run.slot_bytes) : 0;
        run.expert_bytes = arena_bytes(run.cache_slots, run.slot_bytes);
    }
    run.total_bytes = add(add(fixed, trunk.memory_bytes()), run.expert_bytes);
    if (run.budget_source == BudgetSource::unknown) run.budget_bytes = run.total_bytes;
}

}  // namespace

uint64_t safe_bytes(const MemoryFacts& memory) {
    const uint64_t of_usable = subtract(safe_part(memory.usable_bytes), memory.neighbour_bytes);
    const uint64_t of_available =
        subtract(memory.available_bytes - memory.available_bytes / 16, memory.neighbour_untaken_bytes);
    return std::min(of_usable, of_available);
}

Result<RunPlan> plan_run(const ModelConfig& config, const ContainerSizes& sizes, const SessionShape& shape,
                         std::optional<uint64_t> budget_bytes, const std::optional<MemoryFacts>& memory) {
    RunPlan run{};
    run.needs = plan(config, sizes, shape, memory ? std::optional(memory->usable_bytes) : std::nullopt);
    const std::vector<TrunkChoice> choices = trunk_choices(sizes, run.needs.trunk_bytes);
    run.least_bytes = least_bytes(run.needs, choices);
    const Budget budget = choose_budget(budget_bytes, memory, run.least_bytes);
    if (budget.bytes < run.least_bytes) {
        return too_little(config, sizes, shape, run.least_bytes, budget.bytes,
                          budget.source == BudgetSource::asked);
    }
    run.budget_bytes = budget.bytes;
    run.budget_source = budget.source;
    hold_weights(run, sizes, choices);
    return run;
}

double uniform_hit_rate(const RunPlan& run, const ContainerSizes& sizes) {
    if (run.experts == Held::mapped || sizes.record_count == 0) return 1;
    return static_cast<double>(run.cache_slots) / static_cast<double>(sizes.record_count);
}

TokenEstimate estimate(const RunPlan& run, double hit_rate, double drive_bytes_per_second,
                       double memory_bytes_per_second) {
    const Plan& needs = run.needs;
    const auto expert_bytes = static_cast<double>(needs.expert_read_bytes);
    TokenEstimate out{};
    out.drive_bytes = static_cast<double>(run.trunk_drive_bytes);
    if (run.experts == Held::streamed) out.drive_bytes += (1 - hit_rate) * expert_bytes;
    out.memory_bytes = static_cast<double>(needs.trunk_read_bytes) + expert_bytes +
                       2 * static_cast<double>(needs.kda_state_bytes) +
                       2 * static_cast<double>(needs.conv_ring_bytes) +
                       static_cast<double>(needs.mla_latent_bytes);
    if (drive_bytes_per_second > 0) out.seconds = out.drive_bytes / drive_bytes_per_second;
    if (memory_bytes_per_second > 0) {
        out.seconds = std::max(out.seconds, out.memory_bytes / memory_bytes_per_second);
    }
    return out;
}

}  // namespace waste::engine
