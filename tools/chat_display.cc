#include "tools/chat_display.h"

#include <fmt/format.h>

#include <utility>

#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr std::string_view kDim = "\033[2m", kPlain = "\033[0m";

}  // namespace

std::string call_text(const engine::ToolCall& call, bool terminal) {
    const std::string line =
        fmt::format("[calls {} {}]", call.name.empty() ? "a tool without a name" : call.name,
                    call.arguments.empty() ? "{}" : call.arguments);
    return (terminal ? printable(line) : line) + "\n";
}

void ChatDisplay::show(const engine::ReplyPiece& piece) {
    if (!piece.reasoning.empty()) {
        if (thinking_ == ShowThinking::fold) {
            answer(piece.reasoning);
            folded_ = true;
        } else {
            begin_thinking();
            if (thinking_ == ShowThinking::apart) {
                err_.write(shown_on(err_.terminal, piece.reasoning));
                last_err_ = piece.reasoning.back();
            }
        }
    }
    // Folded, it stands there already.
    if (piece.reasoning_was_response && thinking_ == ShowThinking::fold) return;
    if (piece.response.empty()) return;
    end_thinking();
    if (std::exchange(folded_, false)) end_line();
    answer(piece.response);
}

void ChatDisplay::show_call(const engine::ToolCall& call) {
    end_thinking();
    end_line();
    err_.write(call_text(call, err_.terminal));
}

void ChatDisplay::finish() {
    end_thinking();
    end_line();
}

void ChatDisplay::end_line() {
    if (last_out_ != '\n') answer("\n");
}

void ChatDisplay::answer(std::string_view text) {
    out_.write(shown_on(out_.terminal, text));
    last_out_ = text.back();
}

void ChatDisplay::begin_thinking() {
    if (in_thinking_) return;
    in_thinking_ = true;
    last_err_ = '\n';
    if (err_.terminal) err_.write(kDim);
    if (thinking_ == ShowThinking::hide && err_.terminal) {
        err_.write("thinking ...");
        last_err_ = '.';
    }
}

void ChatDisplay::end_thinking() {
    if (!in_thinking_) return;
    in_thinking_ = false;
    if (err_.terminal) err_.write(kPlain);
    if (last_err_ != '\n') err_.write("\n");
}

}  // namespace waste::tools
