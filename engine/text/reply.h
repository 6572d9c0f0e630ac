// A chat reply, read token by token: what is said to the user, what is reasoning, what is markup.
//
// xtml: elements open with <|open|> TAG <|sep|> and close with <|close|> TAG <|sep|>; text inside a `think`
// element is reasoning, all other text outside tags is the response. The model may answer without thinking,
// or be cut in the middle of it. im: everything is response. Markup is told by token id, never by text.
#pragma once

#include <cstdint>
#include <string>

#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace waste::engine {

struct ReplyPiece {
    std::string response;
    std::string reasoning;
};

/// One reply; one thread. The tokenizer must outlive it.
class ReplyReader {
  public:
    /// `thinking`: the prompt has opened a think element already.
    ReplyReader(const Tokenizer& tokenizer, ChatFormat format, bool thinking);

    ReplyPiece push(int32_t id);
    ReplyPiece finish();
    /// The text so far ends inside reasoning.
    bool in_reasoning() const { return in_think_; }

  private:
    enum class Tag : uint8_t { none, opening, closing };

    const Tokenizer& tokenizer_;
    int32_t open_ = -1, close_ = -1, sep_ = -1;  ///< -1: this format has no tags
    bool in_think_;
    Tag tag_ = Tag::none;
    std::string tag_text_;
    Utf8Stream utf8_;
};

}  // namespace waste::engine
