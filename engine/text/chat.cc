#include "engine/text/chat.h"

#include <fmt/format.h>

#include <array>
#include <string_view>

#include "engine/text/chat_render.h"

namespace waste::engine {
namespace {

constexpr std::array<std::string_view, 4> kXtmlMarkers = {"<|open|>", "<|sep|>", "<|close|>",
                                                          "<|end_of_msg|>"};
constexpr std::array<std::string_view, 5> kImMarkers = {"<|im_system|>", "<|im_user|>", "<|im_assistant|>",
                                                        "<|im_middle|>", "<|im_end|>"};

bool has_all(const Tokenizer& tokenizer, std::span<const std::string_view> names) {
    for (const std::string_view name : names) {
        if (!tokenizer.special(name)) return false;
    }
    return true;
}

/// What is wrong with a message's fields for its role, or nothing.
std::string wrong_field(const ChatMessage& message) {
    const std::string& role = message.role;
    if (role != "system" && role != "user" && role != "assistant" && role != "tool") {
        return fmt::format("role '{}' is not one of system, user, assistant and tool", role);
    }
    if (role != "assistant" && !message.reasoning.empty()) return "only an assistant's message has reasoning";
    if (role != "assistant" && !message.tool_calls.empty()) return "only an assistant calls tools";
    if (role != "tool" && !message.tool_call_id.empty()) return "only a tool's message answers a call";
    if (message.tools.empty()) return {};
    if (role != "system") return "only a system message declares tools";
    if (!message.content.empty() || !message.more_content.empty()) {
        return "a system message declares tools or has content, not both";
    }
    return {};
}

}  // namespace

Result<ChatFormat> detect_chat_format(const Tokenizer& tokenizer) {
    if (has_all(tokenizer, kXtmlMarkers)) return ChatFormat::xtml;
    if (has_all(tokenizer, kImMarkers)) return ChatFormat::im;
    return fail(ErrorKind::unsupported, "chat",
                "this vocabulary has no chat markers; plain completion still works");
}

std::string message_place(size_t index) {
    return fmt::format("message {}", index + 1);
}

Result<std::vector<Segment>> render_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                         const ChatOptions& options) {
    if (messages.empty()) return fail(ErrorKind::invalid, "chat", "the conversation has no message");
    for (size_t i = 0; i < messages.size(); ++i) {
        std::string wrong = wrong_field(messages[i]);
        if (!wrong.empty()) return fail(ErrorKind::invalid, message_place(i), std::move(wrong));
    }
    return format == ChatFormat::xtml ? render_xtml(messages, options) : render_im(messages, options);
}

}  // namespace waste::engine
