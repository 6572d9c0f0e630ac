#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string_view>
#include <utility>

#include "engine/text/chat_render.h"
#include "engine/text/json_text.h"

namespace waste::engine {
namespace {

struct Attribute {
    std::string_view name;
    std::string_view value;
};

std::string escaped(std::string_view value) {
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

class XtmlWriter {
  public:
    void open(std::string_view tag, std::initializer_list<Attribute> attributes = {}) {
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

    void body(std::string_view text) { out_.text(text); }
    void body(const ChatMessage& message) {
        out_.text(message.content);
        for (const std::string& part : message.more_content) out_.text(part);
    }

    void end_message() {
        close("message");
        out_.marker("<|end_of_msg|>");
    }

    /// What the system says by itself, not in the words of a message.
    void note(std::string_view type, std::string_view text) {
        open("message", {{"role", "system"}, {"type", type}});
        body(text);
        end_message();
    }

    std::vector<Segment> take() { return out_.take(); }

  private:
    SegmentWriter out_;
};

void write_effort(XtmlWriter& out, std::string_view effort) {
    out.note("thinking-effort",
             fmt::format(
                 "`thinking_effort` guides on how much to think in your thinking channel (not including the "
                 "response channel), supported values include `low`, `medium`, `high`, and `max`.\n"
                 "Now the system is invoked with `thinking_effort={}`.",
                 effort));
}

Result<JsonValue> parse_schema(std::string_view text, const std::string& place) {
    auto value = parse_json(text, place);
    if (!value) return pass(value);
    if (!*value) return fail(ErrorKind::invalid, place, "is not JSON in UTF-8");
    return std::move(**value);
}

enum class Declared : uint8_t { first, later };

Result<void> write_tools(XtmlWriter& out, std::string_view tools, Declared when, const std::string& place) {
    const auto list = parse_schema(tools, place);
    if (!list) return pass(list);
    if (!list->is(JsonValue::Kind::array)) return fail(ErrorKind::invalid, place, "is not a JSON array");
    if (list->items.empty()) return {};
    const std::string_view heading = when == Declared::first
                                         ? "# Tools\nHere are the available tools, described in JSONSchema."
                                         : "## New Tools Available\n"
                                           "The system dynamically extends the toolset via lazy-loading.\n"
                                           "You have access to all existing and extended tools.\n"
                                           "Here are the specs for the extended tools.";
    out.note("tool-declare",
             fmt::format("{}\n\n```json\n{}\n```", heading, print_json(*list, JsonStyle::sorted)));
    return {};
}

void write_tool_choice(XtmlWriter& out, ToolChoice choice) {
    if (choice == ToolChoice::automatic) return;
    const bool required = choice == ToolChoice::required;
    out.note("tool-choice", fmt::format("The system is invoked with `tool_choice={}`.\n"
                                        "You {} in the next message.",
                                        required ? "required" : "none",
                                        required ? "MUST call tools" : "MUST NOT call any tools"));
}

Result<void> write_response_format(XtmlWriter& out, const ChatOptions& options) {
    if (options.response_format == ResponseFormat::text) return {};
    const bool schema = options.response_format == ResponseFormat::json_schema;
    std::string note = fmt::format(
        "The system is invoked with `response_format={}`.\n"
        "Your response must be raw JSON data without markdown code blocks (```json) or any additional "
        "formatting.",
        schema ? "json_schema" : "json_object");
    if (schema) {
        const auto value = parse_schema(options.response_schema, "response schema");
        if (!value) return pass(value);
        note += fmt::format("\nThe JSON data must match the following schema:\n```json\n{}\n```",
                            print_json(*value, JsonStyle::sorted));
    }
    out.note("response-format", note);
    return {};
}

Result<void> write_arguments(XtmlWriter& out, const std::string& arguments, const std::string& place) {
    if (arguments.find_first_not_of(" \t\r\n") == std::string::npos) return {};
    const auto object = parse_json(arguments, place);
    if (!object) return pass(object);
    if (!*object) {
        out.open("json", {{"type", "object"}});
        out.body(arguments);
        out.close("json");
        return {};
    }
    if (!(*object)->is(JsonValue::Kind::object))
        return fail(ErrorKind::invalid, place, "is not a JSON object");
    for (const auto& [key, value] : (*object)->members) {
        out.open("argument", {{"key", key}, {"type", json_kind_name(value.kind)}});
        out.body(value.is(JsonValue::Kind::string) ? value.text : print_json(value, JsonStyle::spaced));
        out.close("argument");
    }
    return {};
}

Result<void> write_call(XtmlWriter& out, const ToolCall& call, size_t index, const std::string& place) {
    if (call.name.empty()) return fail(ErrorKind::invalid, place, "a tool call has no name");
    out.open("call", {{"tool", call.name}, {"index", std::to_string(index)}});
    const auto ok =
        write_arguments(out, call.arguments, fmt::format("{}: arguments of {}", place, call.name));
    if (!ok) return ok;
    out.close("call");
    return {};
}

/// Everything of the message up to its end.
Result<void> write_assistant(XtmlWriter& out, const ChatMessage& message, bool thinking,
                             const std::string& place) {
    if (thinking) {
        out.open("think");
        // Blanks alone are no reasoning.
        if (message.reasoning.find_first_not_of(" \t\r\n\f\v") != std::string::npos)
            out.body(message.reasoning);
        out.close("think");
    }
    out.open("response");
    out.body(message);
    out.close("response");
    if (message.tool_calls.empty()) return {};
    out.open("tools");
    for (size_t i = 0; i < message.tool_calls.size(); ++i) {
        if (const auto ok = write_call(out, message.tool_calls[i], i + 1, place); !ok) return ok;
    }
    out.close("tools");
    return {};
}

/// A message in its place, and for a tool's result what it is the result of.
struct Placed {
    const ChatMessage* message;
    std::string_view tool;  ///< of the call it names, if all its neighbours name one
};

/// Which of `calls` has this id, counted from 0; the first where several have.
std::optional<size_t> call_with_id(std::span<const ToolCall> calls, const std::string& id) {
    if (id.empty()) return std::nullopt;
    for (size_t i = 0; i < calls.size(); ++i) {
        if (calls[i].id == id) return i;
    }
    return std::nullopt;
}

/// The messages with each run of tool results in the order of the calls they answer.
std::vector<Placed> in_call_order(std::span<const ChatMessage> messages) {
    std::vector<Placed> placed;
    std::span<const ToolCall> calls;
    for (size_t i = 0; i < messages.size();) {
        if (messages[i].role != "tool") {
            if (messages[i].role == "assistant") calls = messages[i].tool_calls;
            placed.push_back({&messages[i++], {}});
            continue;
        }
        std::vector<std::pair<size_t, Placed>> run;
        bool all_match = true;
        for (; i < messages.size() && messages[i].role == "tool"; ++i) {
            const auto call = call_with_id(calls, messages[i].tool_call_id);
            all_match = all_match && call;
            run.push_back(
                {call.value_or(0), {&messages[i], call ? std::string_view(calls[*call].name) : ""}});
        }
        if (all_match) {
            std::stable_sort(run.begin(), run.end(), [](auto& a, auto& b) { return a.first < b.first; });
        }
        for (auto& [call, result] : run) {
            if (!all_match) result.tool = {};
            placed.push_back(result);
        }
    }
    return placed;
}

class ConversationWriter {
  public:
    ConversationWriter(XtmlWriter& out, bool thinking) : out_(out), thinking_(thinking) {}

    Result<void> write(const Placed& placed, const std::string& place) {
        const ChatMessage& message = *placed.message;
        if (!message.tools.empty())
            return write_tools(out_, message.tools, Declared::later, place + ": tools");
        if (message.role == "tool") return write_result(placed, place);
        if (message.name.empty()) {
            out_.open("message", {{"role", message.role}});
        } else {
            out_.open("message", {{"role", message.role}, {"name", message.name}});
        }
        if (message.role == "assistant") {
            calls_ = message.tool_calls;
            results_ = 0;
            if (const auto ok = write_assistant(out_, message, thinking_, place); !ok) return ok;
        } else {
            out_.body(message);
        }
        out_.end_message();
        return {};
    }

  private:
    Result<void> write_result(const Placed& placed, const std::string& place) {
        std::string_view tool = placed.tool.empty() ? std::string_view(placed.message->name) : placed.tool;
        if (tool.empty() && results_ < calls_.size()) tool = calls_[results_].name;
        if (tool.empty()) {
            return fail(ErrorKind::invalid, place,
                        "which tool this is the result of is not said, and no call before it tells");
        }
        ++results_;
        out_.open("message", {{"role", "tool"}, {"tool", tool}, {"index", std::to_string(results_)}});
        out_.body(*placed.message);
        out_.end_message();
        return {};
    }

    XtmlWriter& out_;
    bool thinking_;
    std::span<const ToolCall> calls_;  ///< of the last assistant's message
    size_t results_ = 0;               ///< of tools since then
};

}  // namespace

Result<std::vector<Segment>> render_xtml(std::span<const ChatMessage> messages, const ChatOptions& options) {
    const std::string& effort = options.effort;
    if (!effort.empty() && effort != "low" && effort != "high" && effort != "max") {
        return fail(ErrorKind::invalid, "thinking effort",
                    fmt::format("'{}' is not one of low, high and max", effort));
    }
    XtmlWriter out;
    if (!options.tools.empty()) {
        if (const auto ok = write_tools(out, options.tools, Declared::first, "tools"); !ok) return pass(ok);
    }
    if (options.thinking && !effort.empty()) write_effort(out, effort);
    ConversationWriter writer(out, options.thinking);
    for (const Placed& placed : in_call_order(messages)) {
        const auto index = static_cast<size_t>(placed.message - messages.data());
        if (const auto ok = writer.write(placed, message_place(index)); !ok) return pass(ok);
    }
    write_tool_choice(out, options.tool_choice);
    if (const auto ok = write_response_format(out, options); !ok) return pass(ok);
    if (options.generation_prompt) {
        out.open("message", {{"role", "assistant"}});
        out.open(options.thinking ? "think" : "response");
    }
    return out.take();
}

}  // namespace waste::engine
