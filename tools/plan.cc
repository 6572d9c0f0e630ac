// waste plan: what a model needs of this machine's memory, before it is run, converted or even downloaded.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "container/known_drives.h"
#include "engine/hot_list.h"
#include "tools/budget_option.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/plan_recipes.h"
#include "tools/plan_report.h"
#include "tools/session_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::PlannedModel;
using engine::SessionShape;

constexpr const char* kAbout =
    "Says what a model needs of memory, line by line, how it would run on this machine, what a token reads, "
    "and\n"
    "what more or less memory would buy. The model may be a container, a release's folder, or just its\n"
    "config.json: nothing needs to be downloaded or converted to know.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste plan ~/k3.waste\n"
    "  waste plan ~/k3.waste --ctx 8192,65536 --budget 24G\n"
    "  waste plan ~/k3.waste --drive-rate 6.5\n"
    "  waste plan config.json --trunk q8 --json\n"
    "  waste plan config.json --recipes\n"
    "The exit code is 0 whether the model fits or not; with --json see \"run\". docs/plans.md explains the "
    "lines.";

constexpr int64_t kUsualContexts[] = {4096, 32768, 131072};

struct Arguments {
    std::string model;
    std::vector<int64_t> contexts;
    std::string trunk;
    std::string experts;
    int64_t block_tokens = engine::kDefaultBlockTokens;
    int checkpoints = 0;
    int threads = 0;
    std::optional<uint64_t> budget_bytes;
    double drive_gigabytes = 0;   ///< a second; 0: not given
    double memory_gigabytes = 0;  ///< the same
    bool recipes = false;
    bool as_json = false;
};

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

/// What the user says, else what `waste bench drive` last measured of the drive that the model lies on.
Rates known_rates(const Arguments& arguments) {
    constexpr double kGigabyte = 1e9;
    const double drive =
        arguments.drive_gigabytes > 0
            ? arguments.drive_gigabytes * kGigabyte
            : container::known_drive(arguments.model).value_or(container::KnownDrive{}).bytes_per_second;
    return {drive, arguments.memory_gigabytes * kGigabyte};
}

/// How often earlier runs of a container chose each expert; nothing where there were none. A list that cannot be used is
/// the next run's to warn of.
std::vector<uint32_t> learned_uses(const PlannedModel& model) {
    const std::string path = model.fingerprint.empty() ? "" : engine::hot_list_path(model.fingerprint);
    if (path.empty()) return {};
    const auto list = engine::HotList::load(path, model.fingerprint, model.config.moe_layer_count(),
                                            model.config.num_experts);
    if (!list) return {};
    const auto counts = list->counts();
    const bool nothing = std::all_of(counts.begin(), counts.end(), [](uint32_t count) { return count == 0; });
    return nothing ? std::vector<uint32_t>() : std::vector<uint32_t>(counts.begin(), counts.end());
}

/// From what was learned, else as if all experts were equally likely.
double expected_hit_rate(const engine::RunPlan& run, const PlanReport& report) {
    const PlannedModel& model = report.model;
    if (report.learned.empty() || run.experts == engine::Held::mapped) {
        return engine::uniform_hit_rate(run, model.sizes);
    }
    return engine::expected_hit_rate(report.learned, static_cast<int64_t>(run.cache_slots),
                                     model.config.num_experts_per_token);
}

std::optional<MachineReport> read_machine() {
    auto engines = engine::other_engines(container::user_runtime_directory());
    if (!engines) {
        warn(engines.error().text() + "; other engines on this machine are not counted");
        engines.emplace();
    }
    const auto memory = container::read_machine_memory("");
    const auto now = container::read_memory_now("");
    const auto facts = engine::read_memory_facts("", *engines);
    for (const auto* error : {memory ? nullptr : &memory.error(), now ? nullptr : &now.error(),
                              facts ? nullptr : &facts.error()}) {
        if (error == nullptr) continue;
        warn(error->text());
        return std::nullopt;
    }
    return MachineReport{*memory, *now, *engines, *facts};
}

SessionShape shape_of(const Arguments& arguments, int64_t context_length) {
    engine::SessionOptions options;
    options.context_length = context_length;
    options.block_tokens = arguments.block_tokens;
    options.checkpoints = arguments.checkpoints;
    options.threads = engine::choose_placement(arguments.threads).threads;
    return options.shape();
}

/// The budgets worth comparing, in order, each once, without those that are too small.
std::vector<BudgetRow> compare_budgets(const PlanReport& report, const SessionShape& shape) {
    const PlannedModel& model = report.model;
    const auto run_with = [&](std::optional<uint64_t> budget) {
        return engine::plan_run(model.config, model.sizes, shape, budget, std::nullopt);
    };
    const auto everything = run_with(std::nullopt);
    if (!everything) return {};
    const engine::Plan& needs = report.contexts.front().needs;
    std::vector<std::pair<uint64_t, const char*>> budgets;
    if (report.budget_bytes) budgets.emplace_back(*report.budget_bytes, "as given");
    budgets.emplace_back(everything->least_bytes, "least");
    budgets.emplace_back(needs.floor_bytes, "floor");
    if (report.machine) {
        const uint64_t safe = engine::safe_bytes(report.machine->facts);
        budgets.emplace_back(safe, "what is safe");
        budgets.emplace_back(safe / 2, "half of what is safe");
    }
    budgets.emplace_back(needs.recommended_bytes, "recommended");
    budgets.emplace_back(everything->total_bytes, "everything");
    const auto smaller = [](const auto& a, const auto& b) { return a.first < b.first; };
    const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
    std::stable_sort(budgets.begin(), budgets.end(), smaller);
    budgets.erase(std::unique(budgets.begin(), budgets.end(), same), budgets.end());
    std::vector<BudgetRow> rows;
    for (const auto& [bytes, name] : budgets) {
        const auto run = run_with(bytes);
        if (!run) continue;
        const double hit_rate = expected_hit_rate(*run, report);
        rows.push_back({name, *run, hit_rate,
                        engine::estimate(*run, hit_rate, report.rates.drive, report.rates.memory)});
    }
    return rows;
}

int plan(const Arguments& arguments) {
    const auto model = engine::look_up_model(arguments.model, engine::trunk_recipe_from_name(arguments.trunk),
                                             kernels::format_from_name(arguments.experts));
    if (!model) return report(model.error());
    const auto contexts = choose_contexts(arguments, model->config.max_context);
    if (!contexts) return report(contexts.error());
    if (arguments.recipes) {
        return compare_recipes(arguments.model, shape_of(arguments, contexts->front()), arguments.as_json);
    }
    PlanReport found{arguments.model,
                     *model,
                     read_machine(),
                     arguments.budget_bytes,
                     known_rates(arguments),
                     learned_uses(*model),
                     {},
                     {}};
    const auto facts = found.machine ? std::optional(found.machine->facts) : std::nullopt;
    const auto usable = facts ? std::optional(facts->usable_bytes) : std::nullopt;
    for (const int64_t length : *contexts) {
        const SessionShape shape = shape_of(arguments, length);
        found.contexts.push_back(
            {engine::plan(model->config, model->sizes, shape, usable),
             engine::plan_run(model->config, model->sizes, shape, arguments.budget_bytes, facts)});
    }
    found.budgets = compare_budgets(found, shape_of(arguments, contexts->front()));
    (arguments.as_json ? print_plan_json : print_plan_text)(found);
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
    command
        ->add_flag(
            "--recipes", arguments->recipes,
            "Of a model that is not converted: compare all --trunk and --experts, for the shortest context")
        ->excludes("--trunk")
        ->excludes("--experts");
    add_block_option(*command, arguments->block_tokens);
    add_checkpoints_option(*command, arguments->checkpoints);
    add_threads_option(*command, arguments->threads);
    add_budget_option(*command, arguments->budget_bytes);
    command
        ->add_option("--drive-rate", arguments->drive_gigabytes,
                     "GB a second that the drive reads at random, for seconds a token (default: as `waste "
                     "bench drive` "
                     "measured it)")
        ->check(CLI::Range(1e-3, 1e4))
        ->type_name("GB/s");
    command
        ->add_option("--memory-rate", arguments->memory_gigabytes,
                     "The same of memory; `waste bench` measures it")
        ->check(CLI::Range(1e-3, 1e5))
        ->type_name("GB/s");
    command->add_flag("--json", arguments->as_json, "Print JSON, sizes in bytes");
    command->callback([arguments, &action] { action = [arguments] { return plan(*arguments); }; });
}

}  // namespace waste::tools
