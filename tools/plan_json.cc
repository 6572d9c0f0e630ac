#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/describe.h"
#include "tools/plan_report.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::BudgetSource;
using engine::Fit;
using engine::Held;
using engine::RunPlan;
using nlohmann::json;

const char* fit_id(Fit fit) {
    switch (fit) {
        case Fit::comfortable:
            return "comfortable";
        case Fit::tight:
            return "tight";
        case Fit::does_not_fit:
            return "does_not_fit";
        case Fit::unknown:
            break;
    }
    return "unknown";
}

const char* source_id(engine::PlanSource source) {
    switch (source) {
        case engine::PlanSource::container:
            return "container";
        case engine::PlanSource::release:
            return "release";
        case engine::PlanSource::config:
            break;
    }
    return "config";
}

const char* source_id(BudgetSource source) {
    switch (source) {
        case BudgetSource::asked:
            return "asked";
        case BudgetSource::usable:
            return "usable";
        case BudgetSource::safe:
            return "safe";
        case BudgetSource::available:
            return "available";
        case BudgetSource::least:
            return "least";
        case BudgetSource::unknown:
            break;
    }
    return "unknown";
}

const char* held_id(Held held) {
    return held == Held::mapped ? "mapped" : "streamed";
}

json run_json(const RunPlan& run) {
    return {{"budget_bytes", run.budget_bytes},
            {"budget_source", source_id(run.budget_source)},
            {"least_bytes", run.least_bytes},
            {"total_bytes", run.total_bytes},
            {"experts", held_id(run.experts)},
            {"slot_bytes", run.slot_bytes},
            {"cache_slots", run.cache_slots},
            {"expert_bytes", run.expert_bytes},
            {"trunk", held_id(run.trunk)},
            {"mapped_layers", run.mapped_layers},
            {"head_mapped", run.head_mapped},
            {"mapped_trunk_bytes", run.mapped_trunk_bytes},
            {"stream_buffer_bytes", run.stream_buffer_bytes},
            {"trunk_stream_bytes", run.trunk_stream_bytes},
            {"trunk_drive_bytes", run.trunk_drive_bytes}};
}

json context_json(const PlanReport& report, const ContextReport& context) {
    const engine::Plan& needs = context.needs;
    json out = {{"context_length", needs.context_length},
                {"working_sets", needs.working_sets},
                {"fit", fit_id(needs.fit)},
                {"all_experts_fit", needs.all_experts_fit},
                {"missing_bytes", needs.missing_bytes},
                {"longest_context", needs.longest_context},
                {"verdict", verdict(report, context)},
                {"run", nullptr}};
    for (const PlanRow& row : kPlanRows) out[row.key] = needs.*row.bytes;
    if (context.run) out["run"] = run_json(*context.run);
    return out;
}

json budget_json(const BudgetRow& row) {
    json out = run_json(row.run);
    out["name"] = row.name;
    out["hit_rate"] = row.hit_rate;
    out["drive_bytes_per_token"] = row.token.drive_bytes;
    out["memory_bytes_per_token"] = row.token.memory_bytes;
    out["seconds_per_token"] = row.token.seconds > 0 ? json(row.token.seconds) : json(nullptr);
    return out;
}

json machine_json(const MachineReport& machine) {
    const auto& pressure = machine.now.pressure_percent;
    json out = {{"physical_bytes", machine.memory.physical_bytes},
                {"usable_bytes", machine.memory.usable_bytes},
                {"limited_by", machine.memory.limited_by},
                {"available_bytes", machine.facts.available_bytes},
                {"available_limited_by", machine.now.limited_by},
                {"safe_bytes", engine::safe_bytes(machine.facts)},
                {"pressure_percent", pressure ? json(*pressure) : json(nullptr)},
                {"has_swap", machine.now.has_swap},
                {"engines", json::array()}};
    for (const engine::Neighbour& engine : machine.engines) {
        out["engines"].push_back({{"pid", engine.pid},
                                  {"budget_bytes", engine.budget_bytes},
                                  {"taken_bytes", engine.taken_bytes}});
    }
    return out;
}

}  // namespace

void print_plan_json(const PlanReport& report) {
    const engine::PlannedModel& model = report.model;
    const engine::Plan& first = report.contexts.front().needs;
    json out = {
        {"model", report.path},
        {"source", source_id(model.source)},
        {"family", family_id(model.config.family)},
        {"trunk_recipe", model.trunk_recipe},
        {"expert_recipe", model.expert_recipe},
        {"container",
         {{"trunk_bytes", model.sizes.trunk_bytes},
          {"embedding_bytes", model.sizes.embedding_bytes},
          {"head_bytes", model.sizes.head_bytes},
          {"layer_bytes", model.sizes.layer_bytes},
          {"expert_bytes", model.sizes.expert_bytes},
          {"record_bytes", model.sizes.record_bytes},
          {"record_count", model.sizes.record_count},
          {"total_bytes", model.sizes.total_bytes()}}},
        {"per_token", {{"trunk_bytes", first.trunk_read_bytes}, {"expert_bytes", first.expert_read_bytes}}},
        {"machine", report.machine ? machine_json(*report.machine) : json(nullptr)},
        {"plans", json::array()},
        {"budgets", json::array()}};
    for (const ContextReport& context : report.contexts)
        out["plans"].push_back(context_json(report, context));
    for (const BudgetRow& row : report.budgets) out["budgets"].push_back(budget_json(row));
    put_out(fmt::format("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace)));
}

}  // namespace waste::tools
