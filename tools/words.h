// A look at the command line before it is parsed, for what the parser would take silently for something else.
#pragma once

#include <CLI/CLI.hpp>
#include <span>
#include <string>

namespace waste::tools {

/// What is wrong with the words after the command's name, or nothing: an option that would swallow the next
/// option for its value, an empty value, a number that is none or does not fit.
std::string wrong_words(const CLI::App& command, std::span<char* const> words);

}  // namespace waste::tools
