// What `waste plan` finds out, apart from how it is printed.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "container/machine.h"
#include "engine/neighbours.h"
#include "engine/plan_source.h"
#include "engine/run_plan.h"

namespace waste::tools {

/// Bytes a second; 0: not known.
struct Rates {
    double drive = 0;
    double memory = 0;
};

struct MachineReport {
    container::MachineMemory memory;
    container::MemoryNow now;
    std::vector<engine::Neighbour> engines;
    engine::MemoryFacts facts;
};

/// One context length: what it needs, and how it would run within the budget.
struct ContextReport {
    engine::Plan needs;
    Result<engine::RunPlan> run;
};

/// What one budget buys.
struct BudgetRow {
    const char* name;
    engine::RunPlan run;
    double hit_rate;
    engine::TokenEstimate token;
};

struct PlanReport {
    std::string path;
    engine::PlannedModel model;
    std::optional<MachineReport> machine;  ///< nothing where the system does not tell
    std::optional<uint64_t> budget_bytes;  ///< as asked for; nothing: automatic
    Rates rates;
    std::vector<uint32_t> learned;        ///< what earlier runs counted by expert; empty: nothing
    std::vector<ContextReport> contexts;  ///< at least one, shortest first
    std::vector<BudgetRow> budgets;       ///< of the shortest context, in order of size
};

/// One line of the table: of a plan, for people and for machines.
struct PlanRow {
    const char* label;
    const char* key;
    uint64_t engine::Plan::*bytes;
};

inline constexpr PlanRow kPlanRows[] = {
    {"trunk, mapped (without embedding)", "trunk_bytes", &engine::Plan::trunk_bytes},
    {"KDA states", "kda_state_bytes", &engine::Plan::kda_state_bytes},
    {"convolution windows", "conv_ring_bytes", &engine::Plan::conv_ring_bytes},
    {"MLA latents", "mla_latent_bytes", &engine::Plan::mla_latent_bytes},
    {"checkpoints of a session", "checkpoint_bytes", &engine::Plan::checkpoint_bytes},
    {"activations", "activation_bytes", &engine::Plan::activation_bytes},
    {"experts, two layers' choice", "least_cache_bytes", &engine::Plan::least_cache_bytes},
    {"program", "program_bytes", &engine::Plan::program_bytes},
    {"= floor", "floor_bytes", &engine::Plan::floor_bytes},
    {"experts, recommended", "cache_bytes", &engine::Plan::cache_bytes},
    {"= recommended", "recommended_bytes", &engine::Plan::recommended_bytes},
};

/// A sentence on whether and how a context runs.
std::string verdict(const PlanReport& report, const ContextReport& context);

void print_plan_text(const PlanReport& report);
void print_plan_json(const PlanReport& report);

}  // namespace waste::tools
