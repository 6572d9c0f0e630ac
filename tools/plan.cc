// waste plan: what a model needs of this machine's memory, before it is run, converted or even downloaded.
#include "engine/plan.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/machine.h"
#include "engine/plan_source.h"
#include "tools/command.h"
#include "tools/describe.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::Fit;
using engine::Plan;
using engine::PlannedModel;
using nlohmann::json;

constexpr const char* kAbout =
    "Says what a model needs of memory, line by line, whether this machine has it, and what a token reads.\n"
    "The model may be a container, a release's folder, or just its config.json: nothing needs to be "
    "downloaded\n"
    "or converted to know.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste plan ~/k3.waste\n"
    "  waste plan ~/k3.waste --ctx 8192,65536\n"
    "  waste plan config.json --trunk q8 --json\n"
    "The exit code is 0 whether the model fits or not; with --json see \"fit\". docs/plans.md explains the "
    "lines.";

constexpr int64_t kUsualContexts[] = {4096, 32768, 131072};

struct Arguments {
    std::string model;
    std::vector<int64_t> contexts;
    std::string trunk;
    std::string experts;
    int64_t block_tokens = engine::kDefaultBlockTokens;
    int threads = 0;
    bool as_json = false;
};

/// One line of the table: of a plan, for people and for machines.
struct Row {
    const char* label;
    const char* key;
    uint64_t Plan::*bytes;
};

constexpr Row kRows[] = {
    {"trunk, mapped (without embedding)", "trunk_bytes", &Plan::trunk_bytes},
    {"KDA states", "kda_state_bytes", &Plan::kda_state_bytes},
    {"convolution windows", "conv_ring_bytes", &Plan::conv_ring_bytes},
    {"MLA latents", "mla_latent_bytes", &Plan::mla_latent_bytes},
    {"activations", "activation_bytes", &Plan::activation_bytes},
    {"experts, two layers' choice", "least_cache_bytes", &Plan::least_cache_bytes},
    {"program", "program_bytes", &Plan::program_bytes},
    {"= floor", "floor_bytes", &Plan::floor_bytes},
    {"experts, recommended", "cache_bytes", &Plan::cache_bytes},
    {"= recommended", "recommended_bytes", &Plan::recommended_bytes},
};

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

/// What to do where not even the floor fits.
std::string remedies(const Plan& plan, const PlannedModel& model) {
    std::vector<std::string> ways;
    if (plan.longest_context > 0) ways.push_back(fmt::format("--ctx {} or less", plan.longest_context));
    if (model.trunk_recipe != "q4" && model.trunk_recipe != "q4pure") {
        ways.push_back(fmt::format("--trunk q4 instead of {}", model.trunk_recipe));
    }
    ways.push_back(fmt::format("a machine with {}", memory_text(plan.floor_bytes)));
    return fmt::format("{}", fmt::join(ways, "; "));
}

std::string verdict(const Plan& plan, const PlannedModel& model) {
    switch (plan.fit) {
        case Fit::comfortable:
            if (plan.all_experts_fit) return "fits, with every expert in memory";
            return fmt::format("fits, with room for the experts of {} token{}", plan.working_sets,
                               plan.working_sets == 1 ? "" : "s");
        case Fit::tight:
            return "fits, but only just: experts will be read from the drive for every token";
        case Fit::does_not_fit:
            return fmt::format("does not fit, {} missing. What helps: {}", memory_text(plan.missing_bytes),
                               remedies(plan, model));
        case Fit::unknown:
            break;
    }
    return "not known: this system does not tell its memory";
}

void print_heading(const Arguments& arguments, const PlannedModel& model) {
    put_out(fmt::format("{}: {}, {}\n", printable(arguments.model), family_name(model.config.family),
                        layers_text(model.config)));
    const auto& sizes = model.sizes;
    put_out(fmt::format("{}, trunk {}, experts {}: trunk {} (embedding {} of it), experts {}, together {}\n",
                        model.source == engine::PlanSource::container ? "Container" : "Converted",
                        model.trunk_recipe, model.expert_recipe, memory_text(sizes.trunk_bytes),
                        memory_text(sizes.embedding_bytes), memory_text(sizes.expert_bytes),
                        memory_text(sizes.total_bytes())));
}

void print_text(const Arguments& arguments, const PlannedModel& model, const std::vector<Plan>& plans,
                const Result<container::MachineMemory>& machine) {
    print_heading(arguments, model);
    put_out(fmt::format("\n{:<36}", "Memory for a context of"));
    for (const Plan& plan : plans) put_out(fmt::format("{:>12}", plan.context_length));
    put_out("\n");
    for (const Row& row : kRows) {
        put_out(fmt::format("  {:<34}", row.label));
        for (const Plan& plan : plans) put_out(fmt::format("{:>12}", memory_text(plan.*row.bytes)));
        put_out("\n");
    }
    put_out(fmt::format(
        "\nA token reads {} of trunk from memory and, if nothing is cached, {} of experts from the "
        "drive.\n",
        memory_text(plans.front().trunk_read_bytes), memory_text(plans.front().expert_read_bytes)));
    if (machine) {
        put_out(fmt::format("This machine has {}{}.\n", memory_text(machine->usable_bytes),
                            machine->limited_by.empty() ? std::string()
                                                        : fmt::format(" for this process ({}), {} in all",
                                                                      printable(machine->limited_by),
                                                                      memory_text(machine->physical_bytes))));
    }
    for (const Plan& plan : plans)
        put_out(fmt::format("  {}: {}\n", plan.context_length, verdict(plan, model)));
    const auto short_of_memory = [](const Plan& plan) { return plan.fit == Fit::does_not_fit; };
    if (std::any_of(plans.begin(), plans.end(), short_of_memory)) {
        put_out(fmt::format(
            "Where it does not fit it still runs, with the same answers, as long as states and latents "
            "do; weights\nare then read from the drive again and again.\n"));
    }
}

json plan_json(const Plan& plan, const PlannedModel& model) {
    json out = {{"context_length", plan.context_length},
                {"working_sets", plan.working_sets},
                {"fit", fit_id(plan.fit)},
                {"all_experts_fit", plan.all_experts_fit},
                {"missing_bytes", plan.missing_bytes},
                {"longest_context", plan.longest_context},
                {"verdict", verdict(plan, model)}};
    for (const Row& row : kRows) out[row.key] = plan.*row.bytes;
    return out;
}

void print_json(const Arguments& arguments, const PlannedModel& model, const std::vector<Plan>& plans,
                const Result<container::MachineMemory>& machine) {
    json out = {{"model", arguments.model},
                {"source", source_id(model.source)},
                {"family", family_id(model.config.family)},
                {"trunk_recipe", model.trunk_recipe},
                {"expert_recipe", model.expert_recipe},
                {"container",
                 {{"trunk_bytes", model.sizes.trunk_bytes},
                  {"embedding_bytes", model.sizes.embedding_bytes},
                  {"expert_bytes", model.sizes.expert_bytes},
                  {"record_bytes", model.sizes.record_bytes},
                  {"total_bytes", model.sizes.total_bytes()}}},
                {"per_token",
                 {{"trunk_bytes", plans.front().trunk_read_bytes},
                  {"expert_bytes", plans.front().expert_read_bytes}}},
                {"machine", nullptr},
                {"plans", json::array()}};
    if (machine) {
        out["machine"] = {{"physical_bytes", machine->physical_bytes},
                          {"usable_bytes", machine->usable_bytes},
                          {"limited_by", machine->limited_by}};
    }
    for (const Plan& plan : plans) out["plans"].push_back(plan_json(plan, model));
    put_out(fmt::format("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace)));
}

/// The lengths asked for, or the usual ones as far as the model goes and its maximum.
Result<std::vector<int64_t>> choose_contexts(const Arguments& arguments, int64_t max_context) {
    std::vector<int64_t> lengths = arguments.contexts;
    for (const int64_t length : lengths) {
        if (length > max_context) {
            return fail(ErrorKind::invalid, fmt::format("--ctx {}", length),
                        fmt::format("the model's context has {} positions", max_context));
        }
    }
    if (lengths.empty()) {
        for (const int64_t length : kUsualContexts) lengths.push_back(std::min(length, max_context));
        lengths.push_back(max_context);
    }
    std::sort(lengths.begin(), lengths.end());
    lengths.erase(std::unique(lengths.begin(), lengths.end()), lengths.end());
    return lengths;
}

int plan(const Arguments& arguments) {
    const auto model = engine::look_up_model(arguments.model, engine::trunk_recipe_from_name(arguments.trunk),
                                             kernels::format_from_name(arguments.experts));
    if (!model) return report(model.error());
    const auto contexts = choose_contexts(arguments, model->config.max_context);
    if (!contexts) return report(contexts.error());
    const auto machine = container::read_machine_memory("");
    if (!machine) warn(machine.error().text());
    const auto usable = machine ? std::optional(machine->usable_bytes) : std::nullopt;
    std::vector<Plan> plans;
    for (const int64_t length : *contexts) {
        engine::SessionOptions options;
        options.context_length = length;
        options.block_tokens = arguments.block_tokens;
        options.threads = engine::choose_placement(arguments.threads).threads;
        plans.push_back(engine::plan(model->config, model->sizes, options.workspace(), usable));
    }
    (arguments.as_json ? print_json : print_text)(arguments, *model, plans, machine);
    return kOk;
}

}  // namespace

void add_plan_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("plan", "What a model needs of this machine's memory");
    set_help(*command, kAbout, kFooter);
    command->add_option("model", arguments->model, "Container, release's folder or config.json")
        ->required()
        ->type_name("MODEL");
    command
        ->add_option(
            "-c,--ctx", arguments->contexts,
            "Context lengths, separated by commas (default: 4096, 32768, 131072 and the model's own)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->type_name("N,...");
    command
        ->add_option("--trunk", arguments->trunk,
                     "Of a model that is not converted: format of everything but the experts (default: q4)")
        ->check(CLI::IsMember({"q4", "q4pure", "q8", "bf16", "f32"}));
    command
        ->add_option("--experts", arguments->experts,
                     "The same for the experts; auto: mxfp4 if released so, else q4 (default: auto)")
        ->check(CLI::IsMember({"auto", "mxfp4", "q8", "q4", "bf16", "f32"}));
    add_block_option(*command, arguments->block_tokens);
    add_threads_option(*command, arguments->threads);
    command->add_flag("--json", arguments->as_json, "Print JSON, sizes in bytes");
    command->callback([arguments, &action] { action = [arguments] { return plan(*arguments); }; });
}

}  // namespace waste::tools
