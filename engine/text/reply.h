// A chat reply, read token by token: what is said to the user, what is reasoning, which tools are called. None of the
// markup is ever given as text, whether tools were declared or not. Structure is told by token id, never by text.
//
// xtml: text inside a `think` element is reasoning, a `tools` element holds calls, all other text outside tags is the
// response. A channel that opens ends the one before it. The model may close the response though it never closed the
// think element that the prompt opened: then what seemed to be reasoning was the response. It may be cut anywhere.
// im: everything outside of tool-call sections is response.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"
#include "engine/text/xtml_reader.h"

namespace waste::engine {

struct ReplyPiece {
    std::string response;
    std::string reasoning;
    /// All reasoning so far was the response; `response` repeats it.
    bool reasoning_was_response = false;
};

/// One reply; one thread. The tokenizer must outlive it.
class ReplyReader {
  public:
    /// Where a reply begins: behind a prompt that opened a channel, or in an assistant's message without one.
    enum class Start : uint8_t { message, response, think };

    ReplyReader(const Tokenizer& tokenizer, ChatFormat format, Start start);
    /// `thinking`: the prompt has opened a think element already.
    ReplyReader(const Tokenizer& tokenizer, ChatFormat format, bool thinking)
        : ReplyReader(tokenizer, format, thinking ? Start::think : Start::response) {}

    ReplyPiece push(int32_t id);
    ReplyPiece finish();

    /// The text so far ends inside reasoning, or inside a tool call.
    bool in_reasoning() const;
    bool in_tool_call() const { return in_call_; }
    /// The message's end was read.
    bool ended() const { return ended_; }
    /// The calls that are complete, in their order. Arguments that do not make an object are given as they came.
    const std::vector<ToolCall>& tool_calls() const { return calls_; }

    /// The tokens that make what was read so far a whole message, its end included.
    std::vector<Segment> closing() const;

  private:
    ReplyPiece push_im(int32_t id);
    std::string_view channel() const;
    ReplyPiece piece(std::string text);
    void open_element(const XtmlEvent& event);
    ReplyPiece close_element(const std::string& tag);
    void leave_element();
    void leave_until(size_t depth);
    std::vector<std::string> end_open_tag(std::vector<Segment>& out) const;
    void end_call();

    const Tokenizer& tokenizer_;
    ChatFormat format_;
    XtmlReader markup_;
    Utf8Stream utf8_;                    ///< im
    std::vector<std::string> elements_;  ///< that are open, the message first
    std::string reasoning_;              ///< of the first think element, until it is known to be that
    bool may_be_response_;
    bool had_response_;
    bool ended_ = false;

    bool in_section_ = false, in_call_ = false;  ///< of tool calls; the section im only
    ToolCall call_;
    std::string value_;                 ///< text inside the section
    std::string key_, type_, members_;  ///< xtml: of the argument being read; of the arguments before it
    std::vector<ToolCall> calls_;
};

}  // namespace waste::engine
