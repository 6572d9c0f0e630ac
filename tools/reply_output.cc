#include "tools/reply_output.h"

#include <fmt/format.h>

#include <cstdio>

#include "tools/chat_display.h"
#include "tools/terminal.h"

namespace waste::tools {

ReplyOutput::ReplyOutput(const engine::Tokenizer* tokenizer, std::optional<engine::ChatFormat> chat,
                         std::vector<std::string> stops, Style style)
    : tokenizer_(tokenizer), style_(style), stops_(std::move(stops)) {
    if (tokenizer && chat) reply_.emplace(*tokenizer, *chat, style.think);
}

engine::OnTokenAnswer ReplyOutput::push(int32_t id) {
    if (!tokenizer_) {
        show(fmt::format("{}{}", first_id_ ? "" : ",", id));
        first_id_ = false;
    } else if (reply_) {
        show_reply(reply_->push(id));
    } else {
        show(stops_.push(utf8_.push(tokenizer_->bytes(id))));
    }
    if (interrupted() || ferror(stdout)) return engine::OnTokenAnswer::interrupt;
    return stops_.found() ? engine::OnTokenAnswer::stop_text : engine::OnTokenAnswer::keep_going;
}

void ReplyOutput::finish() {
    if (reply_) show_reply(reply_->finish());
    if (tokenizer_) show(stops_.push(utf8_.finish()));
    show(stops_.finish());
    if (!style_.json && !text_.empty() && text_.back() != '\n') put_out("\n");
}

void ReplyOutput::show_reply(const engine::ReplyPiece& piece) {
    if (piece.reasoning_was_response) reasoning_.clear();
    reasoning_ += piece.reasoning;
    if (!style_.json && !style_.quiet) put_err(shown_on(stderr_is_terminal(), piece.reasoning));
    show(stops_.push(piece.response));
    for (; calls_shown_ < reply_->tool_calls().size(); calls_shown_++) {
        if (style_.json || style_.quiet) continue;
        put_err(call_text(reply_->tool_calls()[calls_shown_], stderr_is_terminal()));
    }
}

void ReplyOutput::show(const std::string& text) {
    text_ += text;
    if (style_.json || text.empty()) return;
    put_out(shown_on(stdout_is_terminal(), text));
    fflush(stdout);
}

}  // namespace waste::tools
