#include "tools/chat_input.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <string_view>
#include <vector>

namespace waste::tools {
namespace {

constexpr std::string_view kBlock = "\"\"\"";
constexpr const char* kMorePrompt = ". ";

enum class Follows : uint8_t { nothing, maybe, something };

struct Command {
    const char* name;
    ChatVerb verb;
    Follows follows;
    const char* usage;
    const char* help;
};

constexpr Command kCommands[] = {
    {"save", ChatVerb::save, Follows::maybe, "/save [FILE]",
     "save the conversation; with FILE there, and go on in it"},
    {"load", ChatVerb::load, Follows::something, "/load FILE", "go on in the conversation of a session file"},
    {"undo", ChatVerb::undo, Follows::nothing, "/undo", "take the last message and its answer back"},
    {"retry", ChatVerb::retry, Follows::nothing, "/retry", "answer the last message again, with a new seed"},
    {"edit", ChatVerb::edit, Follows::maybe, "/edit [TEXT]", "change the last message and send it again"},
    {"branch", ChatVerb::branch, Follows::something, "/branch NAME",
     "copy the conversation to a session file of that name beside this one, and go on in the copy"},
    {"stats", ChatVerb::stats, Follows::nothing, "/stats", "tokens read and generated, room left, settings"},
    {"system", ChatVerb::system, Follows::something, "/system TEXT",
     "a system message, in front of your next one"},
    {"set", ChatVerb::set, Follows::maybe, "/set NAME VALUE",
     "temp, top-p, min-p, repeat-penalty, top-k, seed, n (most tokens of an answer), think (on or off)"},
    {"help", ChatVerb::help, Follows::nothing, "/help", "this list"},
    {"quit", ChatVerb::quit, Follows::nothing, "/quit", "leave; Ctrl-D does too"},
};

std::string trimmed(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(" \t"), text.size());
    const size_t end = text.find_last_not_of(" \t");
    return std::string(text.substr(begin, end == std::string_view::npos ? 0 : end + 1 - begin));
}

/// Collects the lines of an entry.
class Entry {
  public:
    /// True where the line ends the entry.
    bool take(std::string_view line) {
        if (!begun_ && line.starts_with(kBlock)) {
            begun_ = block_ = true;
            line.remove_prefix(kBlock.size());
            if (line.empty()) return false;
        }
        begun_ = true;
        const bool marked = block_ ? line.ends_with(kBlock) : line.ends_with('\\');
        if (marked) line.remove_suffix(block_ ? kBlock.size() : 1);
        // The closing on a line of its own adds none.
        if (!block_ || !marked || !line.empty()) lines_.emplace_back(line);
        return marked == block_;
    }
    bool begun() const { return begun_; }
    /// A block is never a command.
    std::string text() const {
        const std::string joined = fmt::format("{}", fmt::join(lines_, "\n"));
        return block_ && joined.starts_with('/') ? "/" + joined : joined;
    }

  private:
    std::vector<std::string> lines_;
    bool begun_ = false, block_ = false;
};

}  // namespace

Result<ChatInput> parse_chat_line(const std::string& line) {
    if (line.starts_with("//")) return ChatInput{ChatVerb::say, line.substr(1)};
    if (!line.starts_with('/')) return ChatInput{ChatVerb::say, line};
    const size_t end = std::min(line.find_first_of(" \t\n"), line.size());
    const std::string name = line.substr(1, end - 1);
    const std::string text = trimmed(std::string_view(line).substr(end));
    for (const Command& command : kCommands) {
        if (name != command.name) continue;
        if (command.follows == Follows::nothing && !text.empty()) {
            return fail(ErrorKind::invalid, "/" + name, "takes nothing behind it");
        }
        if (command.follows == Follows::something && text.empty()) {
            return fail(ErrorKind::invalid, "/" + name, fmt::format("is used as {}", command.usage));
        }
        return ChatInput{command.verb, text};
    }
    return fail(ErrorKind::invalid, "/" + name,
                "is not a command; /help lists them, and // begins a message that starts with /");
}

std::string chat_help() {
    std::string text;
    for (const Command& command : kCommands)
        text += fmt::format("  {:<16} {}\n", command.usage, command.help);
    return text +
           "A line that ends in \\ goes on in the next; \"\"\" begins and ends a message of many lines.\n"
           "Ctrl-C stops an answer and keeps what there is of it.\n";
}

Line read_entry(LineReader& reader, const std::string& prompt, const std::vector<std::string>& prefills) {
    Entry entry;
    for (size_t i = 0;; ++i) {
        const Line line = reader.read(i == 0 ? prompt : kMorePrompt, i < prefills.size() ? prefills[i] : "");
        if (line.status == Line::Status::interrupted) return line;
        if (line.status == Line::Status::end && !entry.begun()) return line;
        const bool ends = line.status == Line::Status::end || entry.take(line.text);
        if (ends) return {Line::Status::line, entry.text()};
    }
}

std::vector<std::string> entry_lines(const std::string& text) {
    if (text.find('\n') == std::string::npos && !text.ends_with('\\') && !text.starts_with(kBlock)) {
        return {text.starts_with('/') ? "/" + text : text};
    }
    std::vector<std::string> lines = {std::string(kBlock)};
    for (size_t begin = 0; begin <= text.size();) {
        const size_t end = std::min(text.find('\n', begin), text.size());
        lines.push_back(text.substr(begin, end - begin));
        begin = end + 1;
    }
    lines.emplace_back(kBlock);
    return lines;
}

}  // namespace waste::tools
