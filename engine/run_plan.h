// How a model runs within a budget: a pure function of what it needs (plan.h), of the budget and of the memory at
// hand. A run allocates exactly these rows: nothing else decides on sizes.
//
// A model that fits as a whole is mapped, and the page cache keeps it. Otherwise experts are read by direct I/O into
// an arena of slots that takes all that is left of the budget, and where not even the trunk fits, its first layers
// are mapped and the others go through two buffers. Results are the same every way, the speed is not.
#pragma once

#include <cstdint>
#include <optional>

#include "container/result.h"
#include "engine/plan.h"

namespace waste::engine {

/// What is known of the memory when a run starts.
struct MemoryFacts {
    uint64_t usable_bytes;     ///< container::MachineMemory
    uint64_t available_bytes;  ///< container::MemoryNow: can be taken without taking it from others
    /// Budgets of other engines on this machine, and the part of them that they have not taken yet, so that
    /// available_bytes still shows it.
    uint64_t neighbour_bytes = 0;
    uint64_t neighbour_untaken_bytes = 0;
};

/// What a run may fill: the smaller of 7/8 of the usable memory and 15/16 of what is available now, each less what
/// is promised to other engines. On a machine with little else to do it is the first, the same every time.
uint64_t safe_bytes(const MemoryFacts& memory);

/// Where a run's budget comes from.
enum class BudgetSource {
    asked,      ///< the number given
    usable,     ///< the number given was more: the machine or its control groups allow no more than this
    safe,       ///< 7/8 of the usable memory
    available,  ///< what is available now decides
    least,      ///< the least that works, more than is safe: others may be pushed out of memory
    unknown,    ///< the memory is not known; everything is mapped
};

enum class Held {
    mapped,    ///< the page cache keeps it
    streamed,  ///< read by direct I/O into memory of the run's own
};

/// How a model runs: total_bytes = needs' states, rings, latents, checkpoints, activations and program, and the rows here.
struct RunPlan {
    Plan needs;
    uint64_t least_bytes;  ///< the smallest budget that works
    uint64_t budget_bytes;
    BudgetSource budget_source;
    // Experts
    Held experts;
    uint64_t slot_bytes;   ///< a record, in whole blocks of 4 KiB
    uint64_t cache_slots;  ///< 0 where mapped; never more than there are records, at least two layers' choice
    uint64_t expert_bytes;  ///< the arena of the slots; where mapped, all banks
    // Trunk: layers [0, mapped_layers) are mapped, the others and, unless head_mapped, what stands behind them
    // come in order through two buffers.
    Held trunk;
    int64_t mapped_layers;
    bool head_mapped;
    uint64_t mapped_trunk_bytes;
    uint64_t
        stream_buffer_bytes;  ///< of one buffer: the largest piece it has to hold, in whole blocks of 4 KiB
    uint64_t trunk_stream_bytes;  ///< the arena of both
    uint64_t trunk_drive_bytes;   ///< a token, or a block of a prompt, reads from the drive

    uint64_t total_bytes;  ///< at most budget_bytes
};

/// `budget_bytes` is one number for everything; nothing: as much as is safe. More than the machine has is cut down to
/// that. An error of kind capacity names the least that works where the budget, or the machine, is below it.
Result<RunPlan> plan_run(const ModelConfig& config, const ContainerSizes& sizes, const SessionShape& shape,
                         std::optional<uint64_t> budget_bytes, const std::optional<MemoryFacts>& memory);

/// The share of a token's experts that are in memory if all are equally likely: of real text more are.
double uniform_hit_rate(const RunPlan& run, const ContainerSizes& sizes);

struct TokenEstimate {
    double drive_bytes;   ///< trunk and experts that are not in memory
    double memory_bytes;  ///< weights, states and, of a full context, latents
    double seconds;       ///< the longer of the two, which overlap; 0: neither rate is known
};

/// Of a decoded token, once everything that stays is there. A rate of 0 is not known and left out.
TokenEstimate estimate(const RunPlan& run, double hit_rate, double drive_bytes_per_second,
                       double memory_bytes_per_second);

}  // namespace waste::engine
