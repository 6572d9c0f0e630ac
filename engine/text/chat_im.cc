#include <string_view>

#include "engine/text/chat_render.h"

namespace waste::engine {
namespace {

std::string_view marker_of(std::string_view role) {
    if (role == "system") return "<|im_system|>";
    if (role == "user") return "<|im_user|>";
    return "<|im_assistant|>";
}

tl::unexpected<Error> not_in_this_format(std::string place, std::string_view what) {
    return fail(ErrorKind::unsupported, std::move(place),
                "this model's chat format does not have " + std::string(what));
}

}  // namespace

Result<std::vector<Segment>> render_im(std::span<const ChatMessage> messages, const ChatOptions& options) {
    if (!options.effort.empty()) return not_in_this_format("thinking effort", "it");
    if (!options.tools.empty()) return not_in_this_format("tools", "them");
    if (options.tool_choice != ToolChoice::automatic) return not_in_this_format("tool choice", "it");
    if (options.response_format != ResponseFormat::text) return not_in_this_format("response format", "it");
    SegmentWriter out;
    for (size_t i = 0; i < messages.size(); ++i) {
        const ChatMessage& message = messages[i];
        if (message.role == "tool" || !message.tool_calls.empty() || !message.tools.empty()) {
            return not_in_this_format(message_place(i), "tools");
        }
        if (!message.reasoning.empty()) return not_in_this_format(message_place(i), "a place for reasoning");
        out.marker(marker_of(message.role));
        out.text(message.name.empty() ? message.role : message.name);
        out.marker("<|im_middle|>");
        out.text(message.content);
        for (const std::string& part : message.more_content) out.text(part);
        out.marker("<|im_end|>");
    }
    if (options.generation_prompt) {
        out.marker("<|im_assistant|>");
        out.text("assistant");
        out.marker("<|im_middle|>");
    }
    return out.take();
}

}  // namespace waste::engine
