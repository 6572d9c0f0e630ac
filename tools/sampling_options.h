// Options of the sampler: on the command line, and by name while a chat goes on.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "container/result.h"
#include "engine/text/sampler.h"

namespace waste::tools {

/// Adds --temp, --top-k, --top-p, --min-p, --repeat-penalty and --seed.
void add_sampling_options(CLI::App& command, engine::SamplerOptions& sampler, std::optional<uint64_t>& seed);

/// Draws a seed where none was given, and checks all; an error's place is the option.
Result<void> check_sampling(engine::SamplerOptions& sampler, std::optional<uint64_t>& seed);

/// Takes over what the command line names, the seed left out.
void take_given_sampling(const CLI::App& command, const engine::SamplerOptions& given,
                         engine::SamplerOptions& sampler);

/// Sets an option by its name without dashes; nothing changes where an error is returned.
Result<void> set_sampling(engine::SamplerOptions& sampler, std::string_view name, const std::string& value);

/// "temp 1, top-k 0, …"
std::string sampling_text(const engine::SamplerOptions& sampler);

}  // namespace waste::tools
