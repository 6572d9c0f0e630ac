#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tools/describe.h"
#include "tools/plan_report.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::BudgetSource;
using engine::Held;
using engine::RunPlan;

std::string gigabytes_text(double bytes) {
    return bytes < 0.5e6 ? "0" : fmt::format("{:.2f} GB", bytes / 1e9);
}

/// How much of the trunk stays in memory.
std::string trunk_text(const PlanReport& report, const RunPlan& run) {
    if (run.trunk == Held::mapped) return "mapped";
    const size_t layers = report.model.sizes.layer_bytes.size();
    return fmt::format("{} of {} layers{}", run.mapped_layers, layers, run.head_mapped ? " + head" : "");
}

std::string slots_text(const RunPlan& run) {
    return run.experts == Held::mapped ? "all" : fmt::format("{}", run.cache_slots);
}

/// What would keep the whole trunk in memory.
std::string remedies(const PlanReport& report, const engine::Plan& needs) {
    std::vector<std::string> ways;
    if (needs.longest_context > 0 && needs.longest_context < needs.context_length) {
        ways.push_back(fmt::format("--ctx {} or less", needs.longest_context));
    }
    const std::string& trunk = report.model.trunk_recipe;
    if (!trunk.starts_with("q4")) ways.push_back(fmt::format("a trunk in q4 instead of {}", trunk));
    ways.push_back(fmt::format("{} of memory", memory_text(needs.floor_bytes)));
    return fmt::format("{}", fmt::join(ways, "; "));
}

std::string budget_source_text(const RunPlan& run) {
    switch (run.budget_source) {
        case BudgetSource::asked:
            return "as given";
        case BudgetSource::usable:
            return "the number given is more than this machine has";
        case BudgetSource::safe:
            return "7/8 of the memory";
        case BudgetSource::available:
            return "15/16 of what is available now";
        case BudgetSource::least:
            return "the least that works, and more than is safe here: others may be pushed out of memory";
        case BudgetSource::unknown:
            break;
    }
    return "all of the model; this system does not tell its memory";
}

void print_heading(const PlanReport& report) {
    const engine::PlannedModel& model = report.model;
    const auto& sizes = model.sizes;
    put_out(fmt::format("{}: {}, {}\n", printable(report.path), family_name(model.config.family),
                        layers_text(model.config)));
    put_out(fmt::format("{}, trunk {}, experts {}: trunk {} (embedding {} of it), experts {}, together {}\n",
                        model.source == engine::PlanSource::container ? "Container" : "Converted",
                        model.trunk_recipe, model.expert_recipe, memory_text(sizes.trunk_bytes),
                        memory_text(sizes.embedding_bytes), memory_text(sizes.expert_bytes),
                        memory_text(sizes.total_bytes())));
}

void print_needs(const PlanReport& report) {
    put_out(fmt::format("\n{:<36}", "Memory for a context of"));
    for (const auto& context : report.contexts) put_out(fmt::format("{:>12}", context.needs.context_length));
    put_out("\n");
    for (const PlanRow& row : kPlanRows) {
        put_out(fmt::format("  {:<34}", row.label));
        for (const auto& context : report.contexts) {
            put_out(fmt::format("{:>12}", memory_text(context.needs.*row.bytes)));
        }
        put_out("\n");
    }
    const engine::Plan& first = report.contexts.front().needs;
    put_out(fmt::format(
        "\nA token reads {} of trunk from memory and, if nothing is cached, {} of experts from the "
        "drive.\n",
        memory_text(first.trunk_read_bytes), memory_text(first.expert_read_bytes)));
}

void print_machine(const MachineReport& machine) {
    const auto& memory = machine.memory;
    put_out(fmt::format("This machine has {}{}; {} are available now{}.\n", memory_text(memory.usable_bytes),
                        memory.limited_by.empty()
                            ? std::string()
                            : fmt::format(" for this process ({}), {} in all", printable(memory.limited_by),
                                          memory_text(memory.physical_bytes)),
                        memory_text(machine.facts.available_bytes),
                        machine.now.has_swap ? "" : ", and there is no swap"));
    if (!machine.engines.empty()) {
        put_out(fmt::format("{} other engine{} hold{} budgets of {} together.\n", machine.engines.size(),
                            machine.engines.size() == 1 ? "" : "s", machine.engines.size() == 1 ? "s" : "",
                            memory_text(machine.facts.neighbour_bytes)));
    }
    if (machine.now.pressure_percent && *machine.now.pressure_percent >= 1) {
        put_out(fmt::format("Memory is short: in {:.0f} % of the last ten seconds something waited for it.\n",
                            *machine.now.pressure_percent));
    }
}

/// The budget is the same for all contexts, but for those that need more than is safe.
void print_verdicts(const PlanReport& report) {
    const auto runs = [](const ContextReport& context) { return context.run.has_value(); };
    const auto first = std::find_if(report.contexts.begin(), report.contexts.end(), runs);
    if (first != report.contexts.end() && report.machine) {
        put_out(fmt::format("Budget: {} ({}).\n", memory_text(first->run->budget_bytes),
                            budget_source_text(*first->run)));
    }
    for (const ContextReport& context : report.contexts) {
        put_out(fmt::format("  {}: {}\n", context.needs.context_length, verdict(report, context)));
    }
}

void print_budgets(const PlanReport& report) {
    const bool timed = report.rates.drive > 0 || report.rates.memory > 0;
    put_out(fmt::format("\nWhat a budget buys, for a context of {}:\n  {:<33}{:<22}{:>13}{:>9}{:>15}{}\n",
                        report.contexts.front().needs.context_length, "budget", "trunk in memory",
                        "expert slots", "hits", "drive, a token", timed ? "   s a token" : ""));
    for (const BudgetRow& row : report.budgets) {
        put_out(fmt::format("  {:<33}{:<22}{:>13}{:>8.1f}%{:>15}",
                            fmt::format("{:<11}{}", memory_text(row.run.budget_bytes), row.name),
                            trunk_text(report, row.run), slots_text(row.run), 100 * row.hit_rate,
                            gigabytes_text(row.token.drive_bytes)));
        if (timed) {
            put_out(row.token.seconds > 0 ? fmt::format("{:>12.2f}", row.token.seconds)
                                          : fmt::format("{:>12}", "-"));
        }
        put_out("\n");
    }
    put_out(report.learned.empty()
                ? "Hits are those of experts that are all equally likely; text that keeps to "
                  "its subject has more.\n"
                : "Hits are what earlier runs of this model would have had.\n");
}

}  // namespace

std::string verdict(const PlanReport& report, const ContextReport& context) {
    if (!context.run) return "does not fit: " + context.run.error().message;
    const RunPlan& run = *context.run;
    if (run.budget_source == BudgetSource::unknown) return "not known: this system does not tell its memory";
    std::string text;
    const uint64_t token_slots =
        run.slot_bytes > 0 ? std::max<uint64_t>(1, run.needs.working_set_bytes / run.slot_bytes) : 1;
    const uint64_t tokens = run.cache_slots / token_slots;
    if (run.experts == Held::mapped) {
        text = "fits, with every expert in memory";
    } else if (run.trunk == Held::streamed) {
        text = fmt::format(
            "runs, but the trunk does not fit: {} stay in memory, {} are read from the drive for "
            "every token. What helps: {}",
            trunk_text(report, run), memory_text(run.trunk_drive_bytes), remedies(report, run.needs));
    } else if (tokens > 0) {
        text = fmt::format("fits, with room for the experts of {} token{}", tokens, tokens == 1 ? "" : "s");
    } else {
        text = "fits, but only just: experts will be read from the drive for every token";
    }
    if (run.budget_source == BudgetSource::least) {
        text += fmt::format(". It takes {}, {}", memory_text(run.total_bytes), budget_source_text(run));
    }
    return text;
}

void print_plan_text(const PlanReport& report) {
    print_heading(report);
    print_needs(report);
    if (report.machine) print_machine(*report.machine);
    print_verdicts(report);
    print_budgets(report);
}

}  // namespace waste::tools
