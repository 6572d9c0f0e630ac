// Plans across the C interface.
#include <optional>
#include <string>

#include "container/live_files.h"
#include "container/machine.h"
#include "engine/c_api/objects.h"
#include "engine/neighbours.h"
#include "engine/plan_source.h"

namespace waste::c_api {
namespace {

int32_t fit_of(engine::Fit fit) {
    switch (fit) {
        case engine::Fit::comfortable:
            return WASTE_FIT_COMFORTABLE;
        case engine::Fit::tight:
            return WASTE_FIT_TIGHT;
        case engine::Fit::does_not_fit:
            return WASTE_FIT_NOT;
        case engine::Fit::unknown:
            break;
    }
    return WASTE_FIT_UNKNOWN;
}

waste_plan rows_of(const engine::Plan& needs, const std::optional<engine::MemoryFacts>& memory) {
    waste_plan out{};
    out.context_length = needs.context_length;
    out.trunk_bytes = needs.trunk_bytes;
    out.kda_state_bytes = needs.kda_state_bytes;
    out.conv_ring_bytes = needs.conv_ring_bytes;
    out.mla_latent_bytes = needs.mla_latent_bytes;
    out.checkpoint_bytes = needs.checkpoint_bytes;
    out.activation_bytes = needs.activation_bytes;
    out.least_cache_bytes = needs.least_cache_bytes;
    out.program_bytes = needs.program_bytes;
    out.floor_bytes = needs.floor_bytes;
    out.cache_bytes = needs.cache_bytes;
    out.recommended_bytes = needs.recommended_bytes;
    out.session_bytes = needs.kda_state_bytes + needs.conv_ring_bytes + needs.mla_latent_bytes +
                        needs.checkpoint_bytes + needs.activation_bytes;
    if (memory) {
        out.usable_bytes = memory->usable_bytes;
        out.safe_bytes = engine::safe_bytes(*memory);
    }
    out.longest_context = needs.longest_context;
    out.fit = fit_of(needs.fit);
    return out;
}

void add_run(const engine::RunPlan& run, waste_plan& out) {
    out.runs = 1;
    out.least_bytes = run.least_bytes;
    out.budget_bytes = run.budget_bytes;
    out.total_bytes = run.total_bytes;
    out.cache_slots = run.cache_slots;
    out.expert_bytes = run.expert_bytes;
    out.drive_trunk_bytes = run.trunk_drive_bytes;
    out.experts_streamed = run.experts == engine::Held::streamed ? 1 : 0;
    out.trunk_streamed = run.trunk == engine::Held::streamed ? 1 : 0;
}

Result<void> plan_path(const char* path, const waste_model_options* options, waste_plan* plan) {
    if (path == nullptr) return fail_null("path");
    if (const auto good = check_out(plan, "waste_plan"); !good) return good;
    auto chosen = open_options(options);
    if (!chosen) return pass(chosen);
    const auto model = engine::look_up_model(path, std::nullopt, std::nullopt);
    if (!model) return pass(model);
    if (const auto good = choose_context(model->config, chosen->session); !good) return good;
    const auto memory = read_memory();
    const auto shape = chosen->session.shape();
    const auto run_with = [&](std::optional<uint64_t> budget, const auto& facts) {
        return engine::plan_run(model->config, model->sizes, shape, budget, facts);
    };
    const auto usable = memory ? std::optional(memory->usable_bytes) : std::nullopt;
    waste_plan out = rows_of(engine::plan(model->config, model->sizes, shape, usable), memory);
    if (const auto run = run_with(chosen->fit.budget_bytes, memory)) {
        add_run(*run, out);
    } else if (const auto anywhere = run_with(std::nullopt, std::optional<engine::MemoryFacts>())) {
        out.least_bytes = anywhere->least_bytes;
    }
    write_struct(out, plan);
    return {};
}

}  // namespace

std::optional<engine::MemoryFacts> read_memory() {
    const auto others = engine::other_engines(container::user_runtime_directory());
    const auto facts = engine::read_memory_facts("", others ? *others : std::vector<engine::Neighbour>());
    return facts ? std::optional(*facts) : std::nullopt;
}

}  // namespace waste::c_api

extern "C" {

waste_status waste_plan_path(const char* path, const waste_model_options* options, waste_plan* plan) {
    return waste::c_api::guarded([&] { return waste::c_api::plan_path(path, options, plan); });
}

waste_status waste_model_get_plan(const waste_model* model, waste_plan* plan) {
    using namespace waste::c_api;
    return guarded([&]() -> waste::Result<void> {
        if (model == nullptr) return fail_null("model");
        if (const auto good = check_out(plan, "waste_plan"); !good) return good;
        const auto& run = model->open->fitted.plan;
        waste_plan out = rows_of(run.needs, model->open->memory);
        add_run(run, out);
        write_struct(out, plan);
        return {};
    });
}

}  // extern "C"
