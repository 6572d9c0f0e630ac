// How an answer appears while it is generated: the response on stdout, all else on stderr.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "engine/text/reply.h"

namespace waste::tools {

enum class ShowThinking : uint8_t {
    apart,  ///< on stderr, dimmed on a terminal
    hide,
    fold  ///< as part of the answer
};

/// A call of a tool, in a line.
std::string call_text(const engine::ToolCall& call, bool terminal);

/// One answer; one thread.
class ChatDisplay {
  public:
    struct Sink {
        std::function<void(std::string_view)> write;
        bool terminal;  ///< what is written must not steer it
    };

    ChatDisplay(ShowThinking thinking, Sink out, Sink err)
        : thinking_(thinking), out_(std::move(out)), err_(std::move(err)) {}

    void show(const engine::ReplyPiece& piece);
    void show_call(const engine::ToolCall& call);
    /// The answer's last line ends.
    void finish();

  private:
    void begin_thinking();
    void end_thinking();
    void answer(std::string_view text);
    void end_line();

    ShowThinking thinking_;
    Sink out_, err_;
    bool in_thinking_ = false;
    bool folded_ = false;   ///< the answer so far ends in thinking
    char last_out_ = '\n';  ///< the last character written to `out`
    char last_err_ = '\n';  ///< of the thinking being shown
};

}  // namespace waste::tools
