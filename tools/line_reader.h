// Lines that a person types, or that a pipe brings.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

namespace waste::tools {

struct Line {
    enum class Status : uint8_t {
        line,
        end,         ///< of the input; Ctrl-D
        interrupted  ///< Ctrl-C: what was typed is dropped
    };
    Status status;
    std::string text{};  ///< without its line end
};

/// One thread.
class LineReader {
  public:
    virtual ~LineReader() = default;

    /// `prefill` stands in the line already, to be changed, where can_edit().
    virtual Line read(const std::string& prompt, const std::string& prefill = "") = 0;
    /// Adds a line to what the arrow keys bring back.
    virtual void remember(const std::string& line) = 0;
    virtual bool can_edit() const = 0;
};

/// With editing and history where stdin and stdout are a terminal; elsewhere plain lines, and no prompts.
std::unique_ptr<LineReader> make_line_reader();

}  // namespace waste::tools
