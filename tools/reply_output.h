// Where generated tokens go: text to stdout as it comes, reasoning and calls of tools to stderr, text and reasoning into
// the result.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/text/chat.h"
#include "engine/text/reply.h"
#include "engine/text/tokenizer.h"

namespace waste::tools {

class ReplyOutput {
  public:
    struct Style {
        bool json;   ///< collect only, print nothing
        bool quiet;  ///< no reasoning on stderr
        bool think;  ///< the prompt opened a think element
    };

    /// Without a tokenizer ids are printed, separated by commas. The tokenizer must outlive this.
    ReplyOutput(const engine::Tokenizer* tokenizer, std::optional<engine::ChatFormat> chat,
                std::vector<std::string> stops, Style style);

    engine::OnTokenAnswer push(int32_t id);
    void finish();

    const std::string& text() const { return text_; }
    const std::string& reasoning() const { return reasoning_; }
    bool cut_in_reasoning() const { return reply_ && reply_->in_reasoning(); }

  private:
    void show_reply(const engine::ReplyPiece& piece);
    void show(const std::string& text);

    const engine::Tokenizer* tokenizer_;
    Style style_;
    std::optional<engine::ReplyReader> reply_;
    engine::Utf8Stream utf8_;
    engine::StopStrings stops_;
    std::string text_, reasoning_;
    size_t calls_shown_ = 0;
    bool first_id_ = true;
};

}  // namespace waste::tools
