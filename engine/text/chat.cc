#include "engine/text/chat.h"

#include <fmt/format.h>

#include <array>
#include <string_view>
#include <utility>

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

bool is_known_role(std::string_view role) {
    return role == "system" || role == "user" || role == "assistant";
}

struct Attribute {
    std::string_view name;
    std::string_view value;
};

/// Collects segments. Markers are string constants of this file; everything that comes from a message goes
/// through text().
class SegmentWriter {
  public:
    void marker(std::string_view name) { segments_.push_back({std::string(name), true}); }
    void text(std::string_view content) {
        if (!content.empty()) segments_.push_back({std::string(content), false});
    }
    std::vector<Segment> take() { return std::move(segments_); }

  private:
    std::vector<Segment> segments_;
};

class XtmlWriter {
  public:
    void open(std::string_view tag, std::span<const Attribute> attributes = {}) {
        out_.marker("<|open|>");
        out_.text(tag);
        for (const Attribute& attribute : attributes) {
            out_.text(fmt::format(" {}", attribute.name));
            out_.text("=\"");
            out_.text(escaped(attribute.value));
            out_.text("\"");
        }
        out_.marker("<|sep|>");
    }

    void close(std::string_view tag) {
        out_.marker("<|close|>");
        out_.text(tag);
        out_.marker("<|sep|>");
    }

    void element(std::string_view tag, std::string_view body) {
        open(tag);
        out_.text(body);
        close(tag);
    }

    void end_message() {
        close("message");
        out_.marker("<|end_of_msg|>");
    }

    void effort_note(std::string_view effort) {
        const std::array<Attribute, 2> attributes = {{{"role", "system"}, {"type", "thinking-effort"}}};
        open("message", attributes);
        out_.text(
            fmt::format("`thinking_effort` guides on how much to think in your thinking channel (not "
                        "including the response "
                        "channel), supported values include `low`, `medium`, `high`, and `max`.\n"
                        "Now the system is invoked with `thinking_effort={}`.",
                        effort));
        end_message();
    }

    void message(const ChatMessage& message, bool thinking) {
        const std::array<Attribute, 2> attributes = {{{"role", message.role}, {"name", message.name}}};
        open("message", std::span(attributes).first(message.name.empty() ? 1 : 2));
        if (message.role == "assistant") {
            if (thinking) element("think", message.reasoning);
            element("response", message.content);
        } else {
            out_.text(message.content);
        }
        end_message();
    }

    void generation_prompt(bool thinking) {
        const std::array<Attribute, 1> attributes = {{{"role", "assistant"}}};
        open("message", attributes);
        open(thinking ? "think" : "response");
    }

    std::vector<Segment> take() { return out_.take(); }

  private:
    static std::string escaped(std::string_view value) {
        std::string text;
        for (const char c : value) {
            if (c == '&') {
                text += "&amp;";
            } else if (c == '"') {
                text += "&quot;";
            } else {
                text += c;
            }
        }
        return text;
    }

    SegmentWriter out_;
};

Result<std::vector<Segment>> render_xtml(std::span<const ChatMessage> messages, const ChatOptions& options) {
    const std::string& effort = options.effort;
    if (!effort.empty() && effort != "low" && effort != "high" && effort != "max") {
        return fail(ErrorKind::invalid, "thinking effort",
                    fmt::format("'{}' is not one of low, high and max", effort));
    }
    XtmlWriter writer;
    if (options.thinking && !effort.empty()) writer.effort_note(effort);
    for (const ChatMessage& message : messages) writer.message(message, options.thinking);
    if (options.generation_prompt) writer.generation_prompt(options.thinking);
    return writer.take();
}

std::string_view im_marker(std::string_view role) {
    if (role == "system") return "<|im_system|>";
    if (role == "user") return "<|im_user|>";
    return "<|im_assistant|>";
}

Result<std::vector<Segment>> render_im(std::span<const ChatMessage> messages, const ChatOptions& options) {
    if (!options.effort.empty()) {
        return fail(ErrorKind::unsupported, "thinking effort", "this model's chat format does not have it");
    }
    SegmentWriter out;
    for (const ChatMessage& message : messages) {
        if (!message.reasoning.empty()) {
            return fail(ErrorKind::unsupported, "chat",
                        "this model's chat format has no place for reasoning");
        }
        out.marker(im_marker(message.role));
        out.text(message.name.empty() ? message.role : message.name);
        out.marker("<|im_middle|>");
        out.text(message.content);
        out.marker("<|im_end|>");
    }
    if (options.generation_prompt) {
        out.marker("<|im_assistant|>");
        out.text("assistant");
        out.marker("<|im_middle|>");
    }
    return out.take();
}

}  // namespace

Result<ChatFormat> detect_chat_format(const Tokenizer& tokenizer) {
    if (has_all(tokenizer, kXtmlMarkers)) return ChatFormat::xtml;
    if (has_all(tokenizer, kImMarkers)) return ChatFormat::im;
    return fail(ErrorKind::unsupported, "chat",
                "this vocabulary has no chat markers; plain completion still works");
}

Result<std::vector<Segment>> render_chat(ChatFormat format, std::span<const ChatMessage> messages,
                                         const ChatOptions& options) {
    if (messages.empty()) return fail(ErrorKind::invalid, "chat", "the conversation has no message");
    for (size_t i = 0; i < messages.size(); ++i) {
        const std::string place = fmt::format("message {}", i + 1);
        if (messages[i].role == "tool") {
            return fail(ErrorKind::unsupported, place, "tool messages are not supported yet");
        }
        if (!is_known_role(messages[i].role)) {
            return fail(ErrorKind::invalid, place,
                        fmt::format("role '{}' is not one of system, user and assistant", messages[i].role));
        }
        if (messages[i].role != "assistant" && !messages[i].reasoning.empty()) {
            return fail(ErrorKind::invalid, place, "only an assistant's message has reasoning");
        }
    }
    return format == ChatFormat::xtml ? render_xtml(messages, options) : render_im(messages, options);
}

}  // namespace waste::engine
