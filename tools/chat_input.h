// What a line typed into a chat means.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/result.h"
#include "tools/line_reader.h"

namespace waste::tools {

enum class ChatVerb : uint8_t { say, save, load, undo, retry, edit, branch, stats, system, set, help, quit };

struct ChatInput {
    ChatVerb verb;
    std::string text{};  ///< what is said, or what follows the command

    bool operator==(const ChatInput&) const = default;
};

/// A line that starts with / is a command; // stands for a / that is said.
Result<ChatInput> parse_chat_line(const std::string& line);

/// The commands, a line each.
std::string chat_help();

/// One entry: a line; lines up to one that does not end in a backslash; or all between """ and """, which is said even if
/// it looks like a command. The end of the input ends an entry too. `prefills`: lines that stand there already, one after the other.
Line read_entry(LineReader& reader, const std::string& prompt, const std::vector<std::string>& prefills = {});

/// The lines to prefill so that read_entry() gives `text` if none is changed.
std::vector<std::string> entry_lines(const std::string& text);

}  // namespace waste::tools
