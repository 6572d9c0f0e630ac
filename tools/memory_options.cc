#include "tools/memory_options.h"

#include <fmt/format.h>

#include "tools/budget_option.h"
#include "tools/describe.h"

namespace waste::tools {

void add_memory_options(CLI::App& command, MemoryArguments& arguments) {
    const char* group = "Memory and drive";
    add_budget_option(command, arguments.budget_bytes);
    command.get_option("--budget")->group(group);
    command
        .add_option("--trunk-pages", arguments.trunk_pages,
                    "map: the file's own pages; huge: a copy in huge pages, faster where memory is no matter")
        ->check(CLI::IsMember({"map", "huge"}))
        ->capture_default_str()
        ->group(group);
    command.add_flag("--lock", arguments.lock, "Keep the trunk in memory, as far as `ulimit -l` allows it")
        ->group(group);
    command
        .add_option(
            "--io", arguments.io,
            "How experts that do not fit are read: uring, threads, or buffered through the page cache")
        ->check(CLI::IsMember({"auto", "uring", "threads", "buffered"}))
        ->capture_default_str()
        ->group(group);
    command
        .add_option(
            "--policy", arguments.policy,
            fmt::format("Which experts stay: {} (default: {})", fmt::join(engine::replacement_names(), ", "),
                        engine::replacement_name(engine::kDefaultReplacement)))
        ->check(CLI::IsMember(engine::replacement_names()))
        ->group(group);
    command
        .add_flag("--no-verify", arguments.no_verify,
                  "Trust the drive: do not compare checksums of what is read")
        ->group(group);
    command
        .add_flag("--no-look-ahead", arguments.no_look_ahead,
                  "Never read experts before the router has chosen them")
        ->group(group);
}

Result<engine::RunPlan> hold_model(engine::Model& model, const MemoryArguments& arguments,
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
    options.look_ahead = !arguments.no_look_ahead;
    return engine::fit_model(model, options, fit);
}

std::string holding_text(const engine::Model& model, const engine::RunPlan& plan) {
    return fmt::format("memory: {} of a budget of {}; trunk {}; experts {}\n", memory_text(plan.total_bytes),
                       memory_text(plan.budget_bytes), model.trunk().description(),
                       model.experts().description());
}

}  // namespace waste::tools
