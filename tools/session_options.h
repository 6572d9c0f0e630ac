// Options on what a run remembers: a session in a file, checkpoints, a cache of prompts.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "engine/prompt_cache.h"
#include "engine/session.h"
#include "tools/memory_options.h"

namespace waste::tools {

struct SessionArguments {
    std::string file;        ///< empty: none
    int64_t save_every = 0;  ///< tokens; 0: at the end only
    bool rewind = false;
    std::string state_format = "f32", latent_format = "f32";
    std::optional<int> checkpoints;
    std::string prompt_cache;  ///< a directory; empty: none
    uint64_t prompt_cache_bytes = uint64_t{20} * 1000 * 1000 * 1000;
};

/// --session, --save-every, --rewind, --session-state, --session-latents, --checkpoints, --prompt-cache and --prompt-cache-size.
void add_session_options(CLI::App& command, SessionArguments& arguments);

/// --checkpoints, of a plan or a run.
template <typename Count>
CLI::Option* add_checkpoints_option(CLI::App& command, Count& count) {
    return command.add_option("--checkpoints", count, "Most earlier states of a session kept to go back to")
        ->check(CLI::Range(0, engine::kMostCheckpoints));
}

engine::SaveOptions save_options(const SessionArguments& arguments);

/// As many as were asked for; otherwise as many as fit into a 32nd of the budget or the machine's memory, 1 to 16, where
/// there is something to keep them for.
int checkpoint_count(const SessionArguments& arguments, const MemoryArguments& memory,
                     const engine::ModelConfig& config, bool wanted);

/// The session of the file; nothing where there is none yet.
Result<std::optional<engine::SavedSession>> open_saved(const std::string& path);

/// Saves a session where a file was named for it.
class SessionSaver {
  public:
    /// Both must outlive it.
    SessionSaver(engine::Session& session, const SessionArguments& arguments)
        : session_(session), arguments_(arguments), last_saved_(session.position()) {}

    /// Between tokens: does what --save-every says.
    void after_tokens();
    /// Saves, after an error from the last checkpoint on, and says so on stderr unless quiet. False, after a message,
    /// where that fails.
    bool at_end(bool quiet);

  private:
    bool save(bool quiet);

    engine::Session& session_;
    const SessionArguments& arguments_;
    int64_t last_saved_;
    bool failed_ = false;
};

}  // namespace waste::tools
