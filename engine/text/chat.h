// Conversations to marked-up prompts. The releases' chat formats are code, not templates; which one a model
// speaks is told by the special tokens of its vocabulary. No format stands in for another.
//
//   xtml (Kimi K3)   Elements of four special tokens: <|open|> tag attributes <|sep|> body <|close|> tag
//                    <|sep|>, a message being such an element followed by <|end_of_msg|>. Tag names, attributes and
//                    bodies are text, encoded piece by piece. Bodies are not escaped, and need not be: text
//                    cannot spell a special token. Attribute values escape & and ".
//   im (Kimi-Linear, K2)   <|im_ROLE|> name or role <|im_middle|> content <|im_end|>; no tools: how the release
//                    words them is not known for certain
//
// Message fields only ever become text segments. The models read no images.
//
// A conversation can be rendered in pieces: messages without a generation prompt, then more of them. What stands in
// front (tools, effort) belongs to the first piece only.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "container/result.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {

enum class ChatFormat : uint8_t { xtml, im };

/// A tool's use by an assistant.
struct ToolCall {
    std::string id;  ///< what results refer to; may be empty
    std::string name;
    std::string arguments;  ///< a JSON object; empty: none. What is not JSON is passed on as it is

    bool operator==(const ToolCall&) const = default;
};

struct ChatMessage {
    std::string role;  ///< system, user, assistant or tool
    std::string content;
    std::string reasoning{};                  ///< of an assistant; K3 expects that past turns keep theirs
    std::string name{};                       ///< of the speaker, may be empty; of a tool: the tool
    std::vector<std::string> more_content{};  ///< further parts of the content, each encoded on its own
    std::vector<ToolCall> tool_calls{};       ///< of an assistant
    /// Of a tool: the call this is the result of. Neighbouring results are put into the order of the calls before them
    /// if all name one. A result without a name takes the one of the call at its place.
    std::string tool_call_id{};
    std::string tools{};  ///< of a system message without content: more tools, as ChatOptions::tools

    bool operator==(const ChatMessage&) const = default;
};

enum class ToolChoice : uint8_t { automatic, none, required };
enum class ResponseFormat : uint8_t { text, json_object, json_schema };

struct ChatOptions {
    bool thinking = true;           ///< xtml: turns have a think element; im has none and ignores this
    std::string effort{};           ///< xtml, with thinking: low, high or max; empty leaves the note out
    bool generation_prompt = true;  ///< end with the start of an assistant's turn
    std::string tools{};            ///< a JSON array of tool declarations; empty: none
    ToolChoice tool_choice = ToolChoice::automatic;
    ResponseFormat response_format = ResponseFormat::text;
    std::string response_schema{};  ///< with json_schema: the schema, in JSON
};

/// An error where the vocabulary has neither set of markers.
Result<ChatFormat> detect_chat_format(const Tokenizer& tokenizer);

/// The prompt of a conversation, in the segments the release's own encoder makes.
Result<std::vector<Segment>> render_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                         const ChatOptions& options);

}  // namespace waste::engine
