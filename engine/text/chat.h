// Conversations to marked-up prompts. The releases' chat formats are code, not templates; which one a model
// speaks is told by the special tokens of its vocabulary. No format stands in for another.
//
//   xtml (Kimi K3)   Elements of four special tokens: <|open|> tag attributes <|sep|> body <|close|> tag
//                    <|sep|>, a message being such an element followed by <|end_of_msg|>. Tag names, attributes and
//                    bodies are text, encoded piece by piece. Bodies are not escaped, and need not be: text
//                    cannot spell a special token. Attribute values escape & and ".
//   im (Kimi-Linear, K2)   <|im_ROLE|> name or role <|im_middle|> content <|im_end|>
//
// Message fields only ever become text segments. Tools and images are not rendered; a message with role
// "tool" is refused.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "container/result.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {

enum class ChatFormat : uint8_t { xtml, im };

struct ChatMessage {
    std::string role;  ///< system, user or assistant
    std::string content;
    std::string reasoning;  ///< of an assistant; K3 expects that past turns keep theirs
    std::string name;       ///< of the speaker, may be empty
};

struct ChatOptions {
    bool thinking = true;           ///< xtml: turns have a think element; im has none and ignores this
    std::string effort;             ///< xtml, with thinking: low, high or max; empty leaves the note out
    bool generation_prompt = true;  ///< end with the start of an assistant's turn
};

/// An error where the vocabulary has neither set of markers.
Result<ChatFormat> detect_chat_format(const Tokenizer& tokenizer);

/// The prompt of a conversation, in the segments the release's own encoder makes.
Result<std::vector<Segment>> render_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                         const ChatOptions& options);

}  // namespace waste::engine
