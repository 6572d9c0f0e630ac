// --budget: how much memory a run may take.
#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "container/result.h"

namespace waste::tools {

/// A size as people write it, in bytes: "24G", "1.5 GiB", "512MiB", "800 MB", "4096". K, M, G and T alone and with "iB"
/// are powers of 1024, with "B" powers of 1000; case does not matter. Fractions are cut to whole bytes.
Result<uint64_t> parse_size(std::string_view text);
/// For CLI::Option::check: what is wrong with it; empty: nothing.
std::string check_size(const std::string& text);

/// Adds --budget SIZE|auto; `budget_bytes` is empty for auto.
void add_budget_option(CLI::App& command, std::optional<uint64_t>& budget_bytes);

}  // namespace waste::tools
