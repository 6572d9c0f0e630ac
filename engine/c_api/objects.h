// What stands behind the pointers of the C interface.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "engine/c_api/boundary.h"
#include "engine/fit.h"
#include "engine/learned_uses.h"
#include "engine/memory_watch.h"
#include "engine/session.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace waste::c_api {

/// Options in the engine's words.
struct OpenOptions {
    engine::SessionOptions session;  ///< its context_length until choose_context() as it was given
    engine::FitOptions fit;
    bool learn = true;
    bool chosen_cpus = false;  ///< the caller named them
};
Result<OpenOptions> open_options(const waste_model_options* given);
/// Puts the default in where no context length was asked for; refuses one that the model cannot have.
Result<void> choose_context(const engine::ModelConfig& config, engine::SessionOptions& options);

/// The machine's memory as it is now; nothing where the system does not tell.
std::optional<engine::MemoryFacts> read_memory();

/// A model and what belongs to it. Immutable once it is open; shared with its sessions.
struct OpenModel {
    explicit OpenModel(engine::Model opened) : model(std::move(opened)) {}
    ~OpenModel();
    OpenModel(const OpenModel&) = delete;
    OpenModel& operator=(const OpenModel&) = delete;

    engine::Model model;
    OpenOptions options;
    std::optional<engine::Tokenizer> tokenizer;
    std::vector<int32_t> stop_ids;
    const char* chat_format = nullptr;
    std::string warnings;                       ///< a line each
    std::optional<engine::MemoryFacts> memory;  ///< as it was opened
    engine::Fitted fitted{};
    std::optional<engine::LearnedUses> learned;
    std::optional<engine::MemoryWatch> watch;
};

}  // namespace waste::c_api

// NOLINTBEGIN(readability-identifier-naming)
struct waste_model {
    std::shared_ptr<const waste::c_api::OpenModel> open;
};

struct waste_session {
    std::shared_ptr<const waste::c_api::OpenModel> open;
    waste::engine::Session session;
    waste::engine::Utf8Stream text{};  ///< of generated tokens, which end inside characters
    std::atomic<bool> in_use{false};
};
// NOLINTEND(readability-identifier-naming)
