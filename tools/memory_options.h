// Options on how a model is held in memory and read from the drive, shared by every command that computes with one.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/fit.h"
#include "engine/learned_uses.h"

namespace waste::tools {

struct MemoryArguments {
    std::optional<uint64_t> budget_bytes;
    std::string trunk_pages = "map";
    bool lock = false;
    std::string io = "auto";
    std::vector<std::string> mirrors;
    std::string policy;
    bool no_learn = false;
    bool no_verify = false;
    bool no_look_ahead = false;
};

/// Adds --budget, --trunk-pages, --lock, --io, --mirror, --policy, --no-verify and --no-look-ahead.
void add_memory_options(CLI::App& command, MemoryArguments& arguments);

/// Adds --no-learn, for commands that use LearnedUses.
void add_learn_option(CLI::App& command, MemoryArguments& arguments);

/// Fits the model to the budget, for a session of these options, whose look-ahead is set.
Result<engine::Fitted> hold_model(engine::Model& model, const MemoryArguments& arguments,
                                  engine::SessionOptions& options);

/// engine::LearnedUses, saved as it goes; nothing with --no-learn. What goes wrong is a warning.
class LearnedUses {
  public:
    LearnedUses(const engine::Model& model, const MemoryArguments& arguments);
    ~LearnedUses();
    LearnedUses(const LearnedUses&) = delete;
    LearnedUses& operator=(const LearnedUses&) = delete;

  private:
    std::optional<engine::LearnedUses> uses_;
};

/// How the model is held, in a few lines for people.
std::string holding_text(const engine::Model& model, const engine::RunPlan& plan);

}  // namespace waste::tools
