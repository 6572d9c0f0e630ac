// The commands of `waste`. Each registers its options with the parser and, when chosen, sets the action to
// run.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>

namespace waste::tools {

inline constexpr int kOk = 0;
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;
inline constexpr int kInterrupted = 130;

/// Runs the chosen command; returns its exit code.
using Action = std::function<int()>;

void add_bench_command(CLI::App& app, Action& action);
/// `bench drive`, a command of `bench`.
CLI::App* add_bench_drive_command(CLI::App& bench, Action& action);
void add_convert_command(CLI::App& app, Action& action);
void add_synth_command(CLI::App& app, Action& action);
void add_plan_command(CLI::App& app, Action& action);
void add_run_command(CLI::App& app, Action& action);
void add_chat_command(CLI::App& app, Action& action);
void add_session_command(CLI::App& app, Action& action);
void add_info_command(CLI::App& app, Action& action);
void add_verify_command(CLI::App& app, Action& action);
void add_tokenize_command(CLI::App& app, Action& action);
void add_detokenize_command(CLI::App& app, Action& action);
void add_eval_command(CLI::App& app, Action& action);

}  // namespace waste::tools
