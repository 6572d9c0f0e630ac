// waste: the command line. Parsing and exit codes are here, each command in a file of its own.
#include <cstdio>
#include <cstring>
#include <string_view>
#include <utility>

#include "tools/command.h"
#include "tools/terminal.h"

extern char** environ;

namespace waste::tools {
namespace {

constexpr const char* kAbout =
    "Runs Kimi K3 and Kimi-Linear on one machine, with the experts on the drive.\n\n"
    "  waste convert SRC DST      a release's folder becomes a container\n"
    "  waste plan MODEL           what it needs of this machine's memory\n"
    "  waste run MODEL PROMPT     generates text\n";

constexpr const char* kFooter =
    "Environment: WASTE_TIER forces an instruction-set tier like --tier.\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted.\n"
    "`waste COMMAND --help` has the details and examples.";

/// A misspelt setting must not pass for a setting.
void warn_about_unknown_settings() {
    for (char** entry = environ; *entry; entry++) {
        const std::string_view text = *entry;
        const std::string_view name = text.substr(0, text.find('='));
        if (name.starts_with("WASTE_") && name != "WASTE_TIER") {
            warn("the environment variable " + std::string(name) + " means nothing to waste");
        }
    }
}

/// "run " once the parser knows which command it is in.
std::string chosen_command(const CLI::App& app) {
    const auto chosen = app.get_subcommands();
    return chosen.empty() ? "" : chosen.front()->get_name() + " ";
}

/// An option without its value takes the next word for it, even one that is an option itself. Returns what to
/// say about that, or nothing.
std::string swallowed_option(const CLI::App& command) {
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_positional()) continue;
        for (const std::string& value : option->results()) {
            if (!value.starts_with('-') || !command.get_option_no_throw(value)) continue;
            return option->get_name() + " has no value, " + value + " follows it";
        }
    }
    return {};
}

int run(int argc, char** argv) {
    CLI::App app(kAbout, "waste");
    app.footer(kFooter);
    app.set_version_flag("--version", "waste " WASTE_VERSION);
    app.require_subcommand(1);
    app.get_formatter()->column_width(32);
    Action action;
    add_convert_command(app, action);
    add_plan_command(app, action);
    add_run_command(app, action);
    add_info_command(app, action);
    add_verify_command(app, action);
    add_tokenize_command(app, action);
    add_detokenize_command(app, action);
    add_eval_command(app, action);
    const auto is_first_word = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
    if (argc > 1 && argv[1][0] != '-' && std::as_const(app).get_subcommands(is_first_word).empty()) {
        warn(std::string("'") + argv[1] + "' is not a command; `waste --help` lists them");
        return kUsage;
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        // Help and version requests arrive as exceptions too, with exit code 0.
        if (error.get_exit_code() == 0) return app.exit(error);
        const auto unknown = app.remaining();
        const bool no_command = app.get_subcommands().empty() && !unknown.empty();
        warn((no_command ? "unknown option " + unknown.front() : std::string(error.what())) +
             "; see `waste " + chosen_command(app) + "--help`");
        return kUsage;
    }
    if (const std::string wrong = swallowed_option(*app.get_subcommands().front()); !wrong.empty()) {
        warn(wrong);
        return kUsage;
    }
    warn_about_unknown_settings();
    return action();
}

}  // namespace
}  // namespace waste::tools

int main(int argc, char** argv) {
    return waste::tools::run(argc, argv);
}
