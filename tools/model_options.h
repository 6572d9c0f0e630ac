// Options that every command which computes with a model shares.
#pragma once

#include <CLI/CLI.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "engine/session.h"
#include "engine/text/tokenizer.h"
#include "tools/memory_options.h"

namespace waste::tools {

struct ModelArguments {
    std::string model;
    std::string compute = "int8";
    std::string tier;  ///< empty: WASTE_TIER, else the fastest
    int threads = 0;   ///< 0: chosen from what the machine has
    std::string cpus;  ///< one thread on each; empty: chosen
    int64_t block_tokens = engine::kDefaultBlockTokens;
    MemoryArguments memory;
    int64_t context_length = 0;  ///< 0: chosen by the command
};

/// Adds MODEL, --compute, --tier, --threads, --cpus, --block, --ctx and those of memory_options.h.
void add_model_options(CLI::App& command, ModelArguments& arguments);
CLI::Option* add_threads_option(CLI::App& command, int& threads);
void add_block_option(CLI::App& command, int64_t& block_tokens);

/// A prompt: an argument, a file, token ids, or else stdin.
struct PromptArguments {
    std::optional<std::string> text;
    std::string file;
    std::string ids;
};

/// Adds PROMPT, --file and --ids, of which one may be given.
void add_prompt_options(CLI::App& command, PromptArguments& arguments);
/// The prompt's text where it is not given as ids. From stdin a last line end is no part of it; a terminal
/// there means that the prompt was forgotten.
Result<std::string> prompt_text(const PromptArguments& arguments);
/// Where the prompt comes from, for messages.
std::string prompt_place(const PromptArguments& arguments);

/// What the arguments and WASTE_TIER ask for; `context_length` stands in where --ctx was not given.
Result<engine::SessionOptions> session_options(const ModelArguments& arguments, int64_t context_length);

/// The container's tokenizer; an error that says what to do where it has none.
Result<engine::Tokenizer> require_tokenizer(const container::Container& container, int64_t vocab_size);

/// Token ids: integers separated by commas, blanks or newlines. `place` names the text in errors.
Result<std::vector<int32_t>> parse_ids(std::string_view text, const std::string& place);
/// The same from a file; "-" reads stdin.
Result<std::vector<int32_t>> read_ids(const std::string& path);
/// A whole text file; "-" reads stdin.
Result<std::string> read_text(const std::string& path);

}  // namespace waste::tools
