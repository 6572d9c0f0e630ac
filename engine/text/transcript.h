// A conversation read back from its tokens, so that nobody has to keep its text beside them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "engine/text/chat.h"
#include "engine/text/reply.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {

struct TranscriptMessage {
    ChatMessage message;   ///< role and content at least; parts of a content are one
    std::string type{};    ///< xtml: tool-declare, thinking-effort, …; empty for what somebody said
    bool complete = true;  ///< its end is there
};

/// The messages in `ids`, in their order. Tokens outside of messages are left out: what is not marked up as a
/// conversation has no message.
std::vector<TranscriptMessage> read_transcript(const Tokenizer& tokenizer, ChatFormat format,
                                               std::span<const int32_t> ids);

/// How a reply behind a prompt of these tokens begins. `message` too where they do not end with the start of an answer.
ReplyReader::Start reply_start(const Tokenizer& tokenizer, ChatFormat format,
                               std::span<const int32_t> prompt);

}  // namespace waste::engine
