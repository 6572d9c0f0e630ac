// How a command's help looks: a paragraph about it, usage, options with their values and defaults, examples.
#pragma once

#include <CLI/CLI.hpp>

namespace waste::tools {

/// Gives a subcommand its help page. Its one-line description stays what `waste --help` lists.
void set_help(CLI::App& command, const char* about, const char* footer);

}  // namespace waste::tools
