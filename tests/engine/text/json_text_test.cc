#include "engine/text/json_text.h"

#include <gtest/gtest.h>

namespace waste::engine {
namespace {

std::string printed(std::string_view text, JsonStyle style) {
    const auto value = parse_json(text, "here");
    if (!value) return value.error().text();
    return *value ? print_json(**value, style) : "not JSON";
}

TEST(JsonText, SortsKeysAtEveryDepth) {
    EXPECT_EQ(printed(R"( {"b": [ {"z":1, "a":2} ], "a": {"é": {}, "B": []}, "": 0} )", JsonStyle::sorted),
              R"({"":0,"a":{"B":[],"é":{}},"b":[{"a":2,"z":1}]})");
    // By code point, as bytes of UTF-8 are: U+FF5E comes before U+1F600, though not in UTF-16.
    EXPECT_EQ(printed(R"({"😀":1,"～":2})", JsonStyle::sorted), R"({"～":2,"😀":1})");
}

TEST(JsonText, KeepsOrderWithBlanks) {
    EXPECT_EQ(printed(R"({"b":[1,"two",null],"a":{"k":true}})", JsonStyle::spaced),
              R"({"b": [1, "two", null], "a": {"k": true}})");
    EXPECT_EQ(printed("[]", JsonStyle::spaced), "[]");
    EXPECT_EQ(printed("{}", JsonStyle::spaced), "{}");
}

TEST(JsonText, LastOfEqualKeysCountsAtTheFirstPlace) {
    EXPECT_EQ(printed(R"({"a":1,"b":2,"a":3,"c":4,"b":5,"d":6})", JsonStyle::spaced),
              R"({"a": 3, "b": 5, "c": 4, "d": 6})");
}

// The expected texts are what Python's json module makes of these.
TEST(JsonText, SpellsNumbersAsPython) {
    const std::pair<const char*, const char*> cases[] = {
        {"42", "42"},
        {"-7", "-7"},
        {"18446744073709551616", "18446744073709551616"},
        {"-99999999999999999999", "-99999999999999999999"},
        {"1.5", "1.5"},
        {"1.0", "1.0"},
        {"-0.0", "-0.0"},
        {"100.250", "100.25"},
        {"1e2", "100.0"},
        {"0.0001", "0.0001"},
        {"0.00001", "1e-05"},
        {"1.25e-7", "1.25e-07"},
        {"1e15", "1000000000000000.0"},
        {"123456789012345.6", "123456789012345.6"},
        {"1e16", "1e+16"},
        {"12345678901234567890.0", "1.2345678901234567e+19"},
        {"1e300", "1e+300"},
        {"0.1", "0.1"},
    };
    for (const auto& [text, expected] : cases) EXPECT_EQ(printed(text, JsonStyle::spaced), expected);
}

TEST(JsonText, EscapesOnlyWhatMustBe) {
    EXPECT_EQ(printed(R"("é\u00e9\ud83d\ude00\"\\\/\n\u0001\u007f<|open|>")", JsonStyle::spaced),
              "\"éé😀\\\"\\\\/\\n\\u0001\x7f<|open|>\"");
    EXPECT_EQ(json_string("a\"b"), "\"a\\\"b\"");
}

TEST(JsonText, TellsWhatIsNotJson) {
    const std::string whole = R"({"a":[1,-2.5e3,"x\u0041"],"b":{"c":null,"d":true}})";
    EXPECT_NE(printed(whole, JsonStyle::sorted), "not JSON");
    for (size_t n = 0; n < whole.size(); ++n) {
        EXPECT_EQ(printed(whole.substr(0, n), JsonStyle::sorted), "not JSON") << n;
    }
    for (const char* text :
         {"", "{}{}", "nul", "{'a':1}", "[1,]", "NaN", "\"\xff\"", "\"\\ud800\"", "1e999"}) {
        EXPECT_EQ(printed(text, JsonStyle::sorted), "not JSON") << text;
    }
}

TEST(JsonText, RefusesWhatIsNestedTooDeep) {
    const auto nested = [](size_t depth) { return std::string(depth, '[') + std::string(depth, ']'); };
    EXPECT_EQ(printed(nested(kMaxJsonDepth), JsonStyle::sorted), nested(kMaxJsonDepth));
    EXPECT_EQ(printed(nested(kMaxJsonDepth + 1), JsonStyle::sorted), "here: is nested deeper than 128");
    EXPECT_EQ(printed(std::string(1 << 20, '['), JsonStyle::sorted), "here: is nested deeper than 128");
}

TEST(JsonText, FindsMembersThatAreNotNull) {
    const auto value = parse_json(R"({"a":1,"b":null})", "here");
    ASSERT_TRUE(value && *value);
    ASSERT_NE((*value)->find("a"), nullptr);
    EXPECT_EQ((*value)->find("a")->text, "1");
    EXPECT_EQ((*value)->find("b"), nullptr);
    EXPECT_EQ((*value)->find("c"), nullptr);
}

}  // namespace
}  // namespace waste::engine
