#include "engine/text/chat_json.h"

#include <gtest/gtest.h>

#include "text_test_data.h"

namespace waste::engine {
namespace {

std::string error_of(std::string_view text) {
    const auto request = parse_chat_json(text, {}, "in");
    return request ? "accepted" : request.error().text();
}

ChatRequest parsed(std::string_view text, const ChatOptions& defaults = {}) {
    auto request = parse_chat_json(text, defaults, "in");
    EXPECT_TRUE(request) << request.error().text();
    return request ? std::move(*request) : ChatRequest{};
}

TEST(ChatJson, ReadsMessages) {
    const auto request = parsed(R"([
        {"role": "system", "content": "S", "name": "policy"},
        {"role": "user", "content": [{"type": "text", "text": "A"}, {"type": "text", "text": "B"}]},
        {"role": "assistant", "content": null, "reasoning_content": "R", "refusal": null, "tool_calls": [
            {"id": "c1", "type": "function", "index": 0, "function": {"name": "f", "arguments": "{\"x\":"}},
            {"name": "g", "arguments": {"z": 1, "a": [1.0]}}]},
        {"role": "assistant", "content": "C", "reasoning": "Q"},
        {"role": "tool", "tool_call_id": "c1", "tool": "f", "content": "T"},
        {"role": "system", "tools": [{"b": 1, "a": 2}]}
    ])");
    ASSERT_EQ(request.messages.size(), 6u);
    EXPECT_EQ(request.messages[0], (ChatMessage{"system", "S", "", "policy"}));
    ChatMessage parts{"user", "A"};
    parts.more_content = {"B"};
    EXPECT_EQ(request.messages[1], parts);
    ChatMessage calling{"assistant", "", "R"};
    calling.tool_calls = {{"c1", "f", "{\"x\":"}, {"", "g", "{\"z\": 1, \"a\": [1.0]}"}};
    EXPECT_EQ(request.messages[2], calling);
    EXPECT_EQ(request.messages[3], (ChatMessage{"assistant", "C", "Q"}));
    ChatMessage answer{"tool", "T", "", "f"};
    answer.tool_call_id = "c1";
    EXPECT_EQ(request.messages[4], answer);
    ChatMessage more{"system", ""};
    more.tools = "[{\"a\":2,\"b\":1}]";
    EXPECT_EQ(request.messages[5], more);
}

TEST(ChatJson, ReadsOptions) {
    const auto request = parsed(R"({"messages": [{"role": "user", "content": "A"}], "tools": [{"t": 1}],
        "tool_choice": "required", "thinking": false, "thinking_effort": "low",
        "response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "object"}}}})");
    EXPECT_EQ(request.options.tools, "[{\"t\":1}]");
    EXPECT_EQ(request.options.tool_choice, ToolChoice::required);
    EXPECT_FALSE(request.options.thinking);
    EXPECT_EQ(request.options.effort, "low");
    EXPECT_EQ(request.options.response_format, ResponseFormat::json_schema);
    EXPECT_EQ(request.options.response_schema, "{\"type\":\"object\"}");
    // A schema without a wrapping; an empty list of tools; the defaults of the caller.
    ChatOptions defaults;
    defaults.effort = "max";
    const auto other = parsed(R"({"messages": [], "tools": [], "tool_choice": null,
        "response_format": {"type": "json_schema", "json_schema": {"type": "array"}}})",
                              defaults);
    EXPECT_EQ(other.options.response_schema, "{\"type\":\"array\"}");
    EXPECT_EQ(other.options.tools, "");
    EXPECT_EQ(other.options.effort, "max");
    EXPECT_EQ(other.options.tool_choice, ToolChoice::automatic);
    EXPECT_TRUE(other.options.thinking);
    EXPECT_EQ(parsed(R"({"messages":[],"tool_choice":"none","response_format":{"type":"json_object"}})")
                  .options.response_format,
              ResponseFormat::json_object);
}

TEST(ChatJson, RefusesWhatItCannotUse) {
    EXPECT_EQ(error_of(""), "in: is not JSON in UTF-8");
    EXPECT_EQ(error_of("3"), "in: has no list of messages");
    EXPECT_EQ(error_of("{}"), "in: has no list of messages");
    EXPECT_EQ(error_of("[3]"), "in: message 1: is not an object");
    EXPECT_EQ(error_of(R"([{"content":"a"}])"), "in: message 1: has no 'role'");
    EXPECT_EQ(error_of(R"([{"role":1}])"), "in: message 1: 'role' is not a string");
    EXPECT_EQ(error_of(R"([{"role":"user","content":3}])"),
              "in: message 1: 'content' is neither text nor a list of parts");
    EXPECT_EQ(error_of(R"([{"role":"user","content":["a"]}])"), "in: message 1: part 1: is not an object");
    EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"text"}]}])"),
              "in: message 1: part 1: has no 'text'");
    EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"text","text":"a"},{"type":"image_url"}]}])"),
              "in: message 1: part 2: images are not supported");
    EXPECT_EQ(error_of(R"([{"role":"user","content":[{"type":"audio"}]}])"),
              "in: message 1: part 1: type 'audio' is not text");
    EXPECT_EQ(error_of(R"([{"role":"user","contents":"a"}])"),
              "in: message 1: 'contents' means nothing here");
    EXPECT_EQ(error_of(R"({"messages":[],"temperature":0})"), "in: 'temperature' means nothing here");
    EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":{}}])"),
              "in: message 1: 'tool_calls' is not a list");
    EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":[1]}])"),
              "in: message 1: call 1: is not an object");
    EXPECT_EQ(error_of(R"([{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":[]}}]}])"),
              "in: message 1: call 1: 'arguments' is neither a string nor an object");
    EXPECT_EQ(error_of(R"({"messages":[],"tools":{}})"), "in: 'tools' is not a list");
    EXPECT_EQ(error_of(R"({"messages":[],"tool_choice":{"type":"function"}})"),
              "in: 'tool_choice' can be auto, none or required, not one tool");
    EXPECT_EQ(error_of(R"({"messages":[],"tool_choice":"any"})"),
              "in: 'tool_choice' is 'any', not auto, none or required");
    EXPECT_EQ(error_of(R"({"messages":[],"thinking":1})"), "in: 'thinking' is neither true nor false");
    EXPECT_EQ(error_of(R"({"messages":[],"response_format":"json"})"),
              "in: 'response_format' is not an object");
    EXPECT_EQ(error_of(R"({"messages":[],"response_format":{"type":"xml"}})"),
              "in: response format 'xml' is not text, json_object or json_schema");
    EXPECT_EQ(error_of(R"({"messages":[],"response_format":{"type":"json_schema"}})"),
              "in: the response format has no 'json_schema'");
}

TEST(ChatJson, EveryCutIsRefused) {
    const std::string whole = R"({"messages":[{"role":"user","content":"é"}],"tools":[{"a":[1,{}]}]})";
    EXPECT_EQ(error_of(whole), "accepted");
    for (size_t n = 0; n < whole.size(); ++n)
        EXPECT_EQ(error_of(whole.substr(0, n)), "in: is not JSON in UTF-8");
}

// From a script's text to the model's tokens: tools, non-ASCII, reasoning kept over turns.
TEST(ChatJson, RendersWhatItRead) {
    const auto request = parsed(R"({"tools": [{"名": "x"}], "messages": [{"role": "user", "content": "é?"},
        {"role": "assistant", "content": "oui", "reasoning_content": "pense"}, {"role": "user", "content": "et?"}]})");
    const std::string line = test::rendered(ChatFormat::xtml, request.messages, request.options);
    EXPECT_NE(line.find("{# Tools\nHere are the available tools, described in "
                        "JSONSchema.\n\n```json\n[{\"名\":\"x\"}]\n```}"),
              std::string::npos);
    EXPECT_NE(line.find("<|open|>{think}<|sep|>{pense}<|close|>{think}<|sep|>"), std::string::npos);
    EXPECT_TRUE(line.ends_with("<|open|>{think}<|sep|>"));
}

}  // namespace
}  // namespace waste::engine
