#include "tools/memory_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "container/drive_facts.h"
#include "tools/budget_option.h"
#include "tools/describe.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kGroup = "Memory and drive";

/// Two directories of one drive are read no faster than one.
void warn_of_one_drive(const std::string& model, const std::vector<std::string>& mirrors) {
    const auto own = container::read_drive_facts(model, "");
    for (const std::string& mirror : mirrors) {
        const auto facts = container::read_drive_facts(mirror, "");
        if (own && facts && facts->device == own->device) {
            warn(fmt::format("--mirror {}: lies on the model's own drive, so nothing is gained", mirror));
        }
    }
}

}  // namespace

void add_memory_options(CLI::App& command, MemoryArguments& arguments) {
    add_budget_option(command, arguments.budget_bytes);
    command.get_option("--budget")->group(kGroup);
    command
        .add_option("--trunk-pages", arguments.trunk_pages,
                    "map: the file's own pages; huge: a copy in huge pages, faster where memory is no matter")
        ->check(CLI::IsMember({"map", "huge"}))
        ->capture_default_str()
        ->group(kGroup);
    command.add_flag("--lock", arguments.lock, "Keep the trunk in memory, as far as `ulimit -l` allows it")
        ->group(kGroup);
    command
        .add_option(
            "--io", arguments.io,
            "How experts that do not fit are read: uring, threads, or buffered through the page cache")
        ->check(CLI::IsMember({"auto", "uring", "threads", "buffered"}))
        ->capture_default_str()
        ->group(kGroup);
    command
        .add_option("--mirror", arguments.mirrors,
                    "A directory on another drive with the model's manifest.json and copies of its large "
                    "files, all or\n"
                    "some: what is there is read from both drives at once; may be given for each drive")
        ->allow_extra_args(false)
        ->type_name("DIR")
        ->group(kGroup);
    command
        .add_option(
            "--policy", arguments.policy,
            fmt::format("Which experts stay: {} (default: {})", fmt::join(engine::replacement_names(), ", "),
                        engine::replacement_name(engine::kDefaultReplacement)))
        ->check(CLI::IsMember(engine::replacement_names()))
        ->group(kGroup);
    command
        .add_flag("--no-verify", arguments.no_verify,
                  "Trust the drive: do not compare checksums of what is read")
        ->group(kGroup);
    command
        .add_flag("--no-look-ahead", arguments.no_look_ahead,
                  "Never read experts before the router has chosen them")
        ->group(kGroup);
}

void add_learn_option(CLI::App& command, MemoryArguments& arguments) {
    command
        .add_flag("--no-learn", arguments.no_learn,
                  "Neither use nor keep which experts this model chose in earlier runs")
        ->group(kGroup);
}

Result<engine::Fitted> hold_model(engine::Model& model, const MemoryArguments& arguments,
                                  engine::SessionOptions& options) {
    engine::FitOptions fit;
    fit.budget_bytes = arguments.budget_bytes;
    if (!arguments.policy.empty()) {
        fit.policy = engine::replacement_from_name(arguments.policy).value_or(fit.policy);
    }
    fit.verify = !arguments.no_verify;
    fit.copy_trunk = arguments.trunk_pages == "huge";
    fit.lock = arguments.lock;
    if (arguments.io == "uring") fit.reader.method = container::ReadMethod::io_uring;
    if (arguments.io == "threads") fit.reader.method = container::ReadMethod::threads;
    fit.reader.direct = arguments.io != "buffered";
    fit.mirrors = arguments.mirrors;
    options.look_ahead = !arguments.no_look_ahead;
    auto fitted = engine::fit_model(model, options, fit);
    if (fitted && !fitted->warning.empty()) warn(fitted->warning);
    if (fitted) warn_of_one_drive(model.container().directory(), arguments.mirrors);
    if (fitted && model.trunk().lock_refused()) warn("--lock: trunk " + model.trunk().description());
    return fitted;
}

LearnedUses::LearnedUses(const engine::Model& model, const MemoryArguments& arguments) {
    if (arguments.no_learn) return;
    uses_.emplace(model);
    if (!uses_->warning().empty()) warn(uses_->warning());
}

LearnedUses::~LearnedUses() {
    if (!uses_) return;
    if (const auto saved = uses_->save(); !saved) warn(saved.error().text() + "; what was learned is lost");
}

std::string holding_text(const engine::Model& model, const engine::RunPlan& plan) {
    return fmt::format("memory: {} of a budget of {}; trunk {}; experts {}\n", memory_text(plan.total_bytes),
                       memory_text(plan.budget_bytes), model.trunk().description(),
                       model.experts().description());
}

}  // namespace waste::tools
