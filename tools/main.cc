// waste: the command line. Parsing and exit codes are here, each command in a file of its own.
#include <signal.h>
#include <unistd.h>

#include <iostream>
#include <span>
#include <string_view>
#include <utility>

#include "tools/command.h"
#include "tools/terminal.h"
#include "tools/words.h"

extern char** environ;

namespace waste::tools {
namespace {

constexpr const char* kAbout =
    "Runs Kimi K3 and Kimi-Linear on one machine, with the experts on the drive.\n\n"
    "  waste convert SRC DST      a release's folder becomes a container\n"
    "  waste plan MODEL           what it needs of this machine's memory\n"
    "  waste run MODEL PROMPT     generates text\n"
    "  waste chat MODEL           a conversation\n";

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

/// A mapped file whose bytes cannot be read ends in this signal: it was cut while in use, or the drive
/// failed.
void catch_lost_mappings() {
    signal(SIGBUS, [](int) {
        constexpr std::string_view kText =
            "waste: a mapped file could not be read; it was cut while in use, or the "
            "drive failed\n";
        [[maybe_unused]] const auto written = write(STDERR_FILENO, kText.data(), kText.size());
        _exit(kFailed);
    });
}

int run(int argc, char** argv) {
    CLI::App app(kAbout, "waste");
    app.footer(kFooter);
    app.set_version_flag("--version", "waste " WASTE_VERSION);
    app.require_subcommand(1);
    app.get_formatter()->column_width(32);
    Action action;
    add_convert_command(app, action);
    add_synth_command(app, action);
    add_plan_command(app, action);
    add_run_command(app, action);
    add_chat_command(app, action);
    add_session_command(app, action);
    add_info_command(app, action);
    add_verify_command(app, action);
    add_tokenize_command(app, action);
    add_detokenize_command(app, action);
    add_eval_command(app, action);
    add_bench_command(app, action);
    if (argc > 1 && argv[1][0] != '-') {
        const auto is_first_word = [&](const CLI::App* command) { return command->get_name() == argv[1]; };
        const auto command = std::as_const(app).get_subcommands(is_first_word);
        if (command.empty()) {
            warn(std::string("'") + argv[1] + "' is not a command; `waste --help` lists them");
            return kUsage;
        }
        const std::span<char* const> words(argv + 2, static_cast<size_t>(argc - 2));
        if (const std::string wrong = wrong_words(*command.front(), words); !wrong.empty()) {
            warn(wrong + "; see `waste " + argv[1] + " --help`");
            return kUsage;
        }
    }
    try {
        app.parse(argc, argv);
    } catch (const CLI::ParseError& error) {
        // Help and version requests arrive as exceptions too, with exit code 0.
        if (error.get_exit_code() == 0) {
            app.exit(error);
            std::cout.flush();
            return finish_output() ? kOk : kFailed;
        }
        const auto unknown = app.remaining();
        const bool no_command = app.get_subcommands().empty() && !unknown.empty();
        warn((no_command ? "unknown option " + unknown.front() : std::string(error.what())) +
             "; see `waste " + chosen_command(app) + "--help`");
        return kUsage;
    }
    warn_about_unknown_settings();
    catch_lost_mappings();
    const int code = action();
    return finish_output() || code != kOk ? code : kFailed;
}

}  // namespace
}  // namespace waste::tools

int main(int argc, char** argv) {
    return waste::tools::run(argc, argv);
}
