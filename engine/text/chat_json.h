// Conversations in the JSON that programs exchange with chat services: a list of messages, or an object
//
//   {"messages": […], "tools": […], "tool_choice": "auto"|"none"|"required", "response_format": {"type": …},
//    "thinking": true|false, "thinking_effort": …}
//
// A message has role, content (text, a list of text parts, or null), name, reasoning_content (or reasoning),
// tool_calls, tool_call_id, and as a system's tools. Arguments of calls are JSON in a string, or an object.
//
// The text is untrusted. A field that would have no effect is refused, so that nobody takes it for one that has.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "engine/text/chat.h"

namespace waste::engine {

inline constexpr size_t kMaxChatJsonBytes = size_t{256} << 20;

struct ChatRequest {
    std::vector<ChatMessage> messages;
    ChatOptions options;  ///< what the text is silent about is as in `defaults`
};

/// `place` names the text in errors. What is read is not rendered yet: roles and their fields are checked there.
Result<ChatRequest> parse_chat_json(std::string_view text, const ChatOptions& defaults,
                                    const std::string& place);

}  // namespace waste::engine
