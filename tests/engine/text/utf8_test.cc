#include "engine/text/utf8.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace waste::engine {
namespace {

const std::string kReplacement = "\xEF\xBF\xBD";

/// Straight from the table of the standard (Unicode 14, table 3-6).
std::string encode_character(char32_t c) {
    const auto tail = [](char32_t bits) { return static_cast<char>(0x80 | (bits & 0x3F)); };
    if (c < 0x80) return {static_cast<char>(c)};
    if (c < 0x800) return {static_cast<char>(0xC0 | c >> 6), tail(c)};
    if (c < 0x10000) return {static_cast<char>(0xE0 | c >> 12), tail(c >> 6), tail(c)};
    return {static_cast<char>(0xF0 | c >> 18), tail(c >> 12), tail(c >> 6), tail(c)};
}

std::string streamed(const std::vector<std::string>& parts) {
    Utf8Stream stream;
    std::string text;
    for (const std::string& part : parts) {
        const std::string whole = stream.push(part);
        EXPECT_FALSE(first_invalid_utf8(whole)) << "half a character left the stream";
        text += whole;
    }
    return text + stream.finish();
}

TEST(Utf8, ReadsEveryCharacterAndNoSurrogate) {
    for (char32_t c = 0; c <= 0x10FFFF; ++c) {
        const std::string bytes = encode_character(c);
        const Utf8Step step = next_utf8(bytes);
        const bool surrogate = c >= 0xD800 && c <= 0xDFFF;
        ASSERT_EQ(step.kind, surrogate ? Utf8Step::Kind::invalid : Utf8Step::Kind::character)
            << std::hex << uint32_t{c};
        if (surrogate) continue;
        ASSERT_EQ(step.character, c);
        ASSERT_EQ(step.bytes, bytes.size());
    }
}

TEST(Utf8, FindsTheFirstInvalidByte) {
    EXPECT_FALSE(first_invalid_utf8(""));
    EXPECT_FALSE(first_invalid_utf8("plain, 你好, 🎉"));
    EXPECT_EQ(first_invalid_utf8("ab\x80"), 2u);             // a tail without a lead
    EXPECT_EQ(first_invalid_utf8("ab\xC3"), 2u);             // cut
    EXPECT_EQ(first_invalid_utf8("\xC0\x80"), 0u);           // overlong
    EXPECT_EQ(first_invalid_utf8("a\xE0\x9F\xBF"), 1u);      // overlong
    EXPECT_EQ(first_invalid_utf8("a\xF0\x8F\xBF\xBF"), 1u);  // overlong
    EXPECT_EQ(first_invalid_utf8("a\xED\xA0\x80"), 1u);      // a surrogate
    EXPECT_EQ(first_invalid_utf8("a\xF4\x90\x80\x80"), 1u);  // above U+10FFFF
    EXPECT_EQ(first_invalid_utf8("a\xFF"), 1u);
}

TEST(Utf8Stream, GivesTheSameTextWhereverItIsCut) {
    const std::string text = "aé你🎉\n" + kReplacement;
    for (size_t i = 0; i <= text.size(); ++i) {
        for (size_t j = i; j <= text.size(); ++j) {
            EXPECT_EQ(streamed({text.substr(0, i), text.substr(i, j - i), text.substr(j)}), text);
        }
    }
}

TEST(Utf8Stream, HoldsBackAnIncompleteCharacter) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push("a\xF0\x9F"), "a");
    EXPECT_EQ(stream.push("\x8E"), "");
    EXPECT_EQ(stream.push("\x89z"), "🎉z");
    EXPECT_EQ(stream.finish(), "");
}

TEST(Utf8Stream, ReplacesWhatIsNotACharacter) {
    EXPECT_EQ(streamed({"a\x80z"}), "a" + kReplacement + "z");
    EXPECT_EQ(streamed({"a\xE4\xBDz"}), "a" + kReplacement + "z");  // one for the whole start
    EXPECT_EQ(streamed({"\xED\xA0\x80"}),
              kReplacement + kReplacement + kReplacement);   // no start at all: one a byte
    EXPECT_EQ(streamed({"a\xE4\xBD"}), "a" + kReplacement);  // flushed at the end
    EXPECT_EQ(streamed({"a\xE4", "\xBD", "\xE4\xBD\xA0"}), "a" + kReplacement + "你");
}

TEST(Utf8Stream, StartsAfreshAfterFinish) {
    Utf8Stream stream;
    EXPECT_EQ(stream.push("\xE4"), "");
    EXPECT_EQ(stream.finish(), kReplacement);
    EXPECT_EQ(stream.push("\xBD\xA0"), kReplacement + kReplacement);
    EXPECT_EQ(stream.finish(), "");
}

}  // namespace
}  // namespace waste::engine
