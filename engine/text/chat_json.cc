#include "engine/text/chat_json.h"

#include <fmt/format.h>

#include <initializer_list>
#include <utility>

#include "engine/text/json_text.h"

namespace waste::engine {
namespace {

using Kind = JsonValue::Kind;

tl::unexpected<Error> wrong(const std::string& place, std::string message) {
    return fail(ErrorKind::invalid, place, std::move(message));
}

/// Refuses members that are not among `known`; null ones are as good as absent.
Result<void> check_members(const JsonValue& object, std::initializer_list<std::string_view> known,
                           const std::string& place) {
    for (const auto& [key, value] : object.members) {
        bool is_known = value.is(Kind::null);
        for (const std::string_view name : known) is_known = is_known || key == name;
        if (!is_known) return wrong(place, fmt::format("'{}' means nothing here", key));
    }
    return {};
}

Result<void> read_string(const JsonValue& object, const char* name, std::string& out,
                         const std::string& place) {
    const JsonValue* value = object.find(name);
    if (!value) return {};
    if (!value->is(Kind::string)) return wrong(place, fmt::format("'{}' is not a string", name));
    out = value->text;
    return {};
}

/// A list that is not empty, as JSON text.
Result<void> read_tools(const JsonValue& object, std::string& out, const std::string& place) {
    const JsonValue* tools = object.find("tools");
    if (!tools) return {};
    if (!tools->is(Kind::array)) return wrong(place, "'tools' is not a list");
    if (!tools->items.empty()) out = print_json(*tools, JsonStyle::sorted);
    return {};
}

Result<void> read_content(const JsonValue& object, ChatMessage& message, const std::string& place) {
    const JsonValue* content = object.find("content");
    if (!content) return {};
    if (content->is(Kind::string)) {
        message.content = content->text;
        return {};
    }
    if (!content->is(Kind::array)) return wrong(place, "'content' is neither text nor a list of parts");
    for (size_t i = 0; i < content->items.size(); ++i) {
        const JsonValue& part = content->items[i];
        const std::string part_place = fmt::format("{}: part {}", place, i + 1);
        if (!part.is(Kind::object)) return wrong(part_place, "is not an object");
        std::string type, text;
        if (const auto ok = read_string(part, "type", type, part_place); !ok) return ok;
        if (type == "image" || type == "image_url") {
            return fail(ErrorKind::unsupported, part_place, "images are not supported");
        }
        if (type != "text") return wrong(part_place, fmt::format("type '{}' is not text", type));
        if (const auto ok = check_members(part, {"type", "text"}, part_place); !ok) return ok;
        if (!part.find("text")) return wrong(part_place, "has no 'text'");
        if (const auto ok = read_string(part, "text", text, part_place); !ok) return ok;
        if (i == 0) {
            message.content = std::move(text);
        } else {
            message.more_content.push_back(std::move(text));
        }
    }
    return {};
}

Result<ToolCall> read_call(const JsonValue& json, const std::string& place) {
    if (!json.is(Kind::object)) return wrong(place, "is not an object");
    const JsonValue* function = json.find("function");
    const JsonValue& described = function ? *function : json;
    if (!described.is(Kind::object)) return wrong(place, "'function' is not an object");
    if (const auto ok = check_members(json, {"id", "type", "index", "function", "name", "arguments"}, place);
        !ok) {
        return pass(ok);
    }
    if (const auto ok = check_members(described, {"id", "type", "index", "name", "arguments"}, place); !ok) {
        return pass(ok);
    }
    ToolCall call;
    if (const auto ok = read_string(json, "id", call.id, place); !ok) return pass(ok);
    if (const auto ok = read_string(described, "name", call.name, place); !ok) return pass(ok);
    const JsonValue* arguments = described.find("arguments");
    if (!arguments) return call;
    if (arguments->is(Kind::string)) {
        call.arguments = arguments->text;
    } else if (arguments->is(Kind::object)) {
        call.arguments = print_json(*arguments, JsonStyle::spaced);
    } else {
        return wrong(place, "'arguments' is neither a string nor an object");
    }
    return call;
}

Result<ChatMessage> read_message(const JsonValue& json, const std::string& place) {
    if (!json.is(Kind::object)) return wrong(place, "is not an object");
    const auto known = check_members(json,
                                     {"role", "content", "name", "tool", "reasoning_content", "reasoning",
                                      "tool_call_id", "tool_calls", "tools"},
                                     place);
    if (!known) return pass(known);
    ChatMessage message{"", ""};
    if (!json.find("role")) return wrong(place, "has no 'role'");
    const std::pair<const char*, std::string*> strings[] = {
        {"role", &message.role},
        {"name", &message.name},
        {"tool", &message.name},
        {"reasoning", &message.reasoning},
        {"reasoning_content", &message.reasoning},
        {"tool_call_id", &message.tool_call_id},
    };
    for (const auto& [name, out] : strings) {
        if (const auto ok = read_string(json, name, *out, place); !ok) return pass(ok);
    }
    if (const auto ok = read_content(json, message, place); !ok) return pass(ok);
    if (const auto ok = read_tools(json, message.tools, place); !ok) return pass(ok);
    const JsonValue* calls = json.find("tool_calls");
    if (calls && !calls->is(Kind::array)) return wrong(place, "'tool_calls' is not a list");
    for (size_t i = 0; calls && i < calls->items.size(); ++i) {
        auto call = read_call(calls->items[i], fmt::format("{}: call {}", place, i + 1));
        if (!call) return pass(call);
        message.tool_calls.push_back(std::move(*call));
    }
    return message;
}

Result<void> read_tool_choice(const JsonValue& object, ChatOptions& options, const std::string& place) {
    if (object.find("tool_choice") && !object.find("tool_choice")->is(Kind::string)) {
        return fail(ErrorKind::unsupported, place,
                    "'tool_choice' can be auto, none or required, not one tool");
    }
    std::string choice = "auto";
    if (const auto ok = read_string(object, "tool_choice", choice, place); !ok) return ok;
    if (choice == "none") {
        options.tool_choice = ToolChoice::none;
    } else if (choice == "required") {
        options.tool_choice = ToolChoice::required;
    } else if (choice != "auto") {
        return wrong(place, fmt::format("'tool_choice' is '{}', not auto, none or required", choice));
    }
    return {};
}

/// The schema lies in `json_schema`, wrapped with a name or not.
Result<void> read_response_format(const JsonValue& object, ChatOptions& options, const std::string& place) {
    const JsonValue* format = object.find("response_format");
    if (!format) return {};
    if (!format->is(Kind::object)) return wrong(place, "'response_format' is not an object");
    std::string type;
    if (const auto ok = read_string(*format, "type", type, place + ": response_format"); !ok) return ok;
    if (type == "text") return {};
    if (type == "json_object") {
        options.response_format = ResponseFormat::json_object;
        return {};
    }
    if (type != "json_schema") {
        return wrong(place,
                     fmt::format("response format '{}' is not text, json_object or json_schema", type));
    }
    const JsonValue* schema = format->find("json_schema");
    for (const char* wrapped : {"schema", "json_schema"}) {
        if (!schema || !schema->find(wrapped)) continue;
        schema = schema->find(wrapped);
        break;
    }
    if (!schema) return wrong(place, "the response format has no 'json_schema'");
    options.response_format = ResponseFormat::json_schema;
    options.response_schema = print_json(*schema, JsonStyle::sorted);
    return {};
}

Result<void> read_options(const JsonValue& object, ChatOptions& options, const std::string& place) {
    const auto known = check_members(
        object, {"messages", "tools", "tool_choice", "response_format", "thinking", "thinking_effort"},
        place);
    if (!known) return known;
    if (const auto ok = read_tools(object, options.tools, place); !ok) return ok;
    if (const auto ok = read_tool_choice(object, options, place); !ok) return ok;
    if (const auto ok = read_response_format(object, options, place); !ok) return ok;
    if (const JsonValue* thinking = object.find("thinking")) {
        if (!thinking->is(Kind::boolean)) return wrong(place, "'thinking' is neither true nor false");
        options.thinking = thinking->text == "true";
    }
    return read_string(object, "thinking_effort", options.effort, place);
}

}  // namespace

Result<ChatRequest> parse_chat_json(std::string_view text, const ChatOptions& defaults,
                                    const std::string& place) {
    if (text.size() > kMaxChatJsonBytes) {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("{} bytes; at most {} are supported", text.size(), kMaxChatJsonBytes));
    }
    const auto json = parse_json(text, place);
    if (!json) return pass(json);
    if (!*json) return wrong(place, "is not JSON in UTF-8");
    ChatRequest request{{}, defaults};
    const JsonValue* messages = &**json;
    if (messages->is(Kind::object)) {
        if (const auto ok = read_options(*messages, request.options, place); !ok) return pass(ok);
        messages = messages->find("messages");
    }
    if (!messages || !messages->is(Kind::array)) return wrong(place, "has no list of messages");
    for (size_t i = 0; i < messages->items.size(); ++i) {
        auto message = read_message(messages->items[i], fmt::format("{}: message {}", place, i + 1));
        if (!message) return pass(message);
        request.messages.push_back(std::move(*message));
    }
    return request;
}

}  // namespace waste::engine
