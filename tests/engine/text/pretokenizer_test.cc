#include "engine/text/pretokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace waste::engine {
namespace {

using Pieces = std::vector<std::string>;

Pieces split(std::string_view text) {
    static const auto pretokenizer = Pretokenizer::create();
    EXPECT_TRUE(pretokenizer) << pretokenizer.error().text();
    std::vector<std::string_view> pieces;
    const auto done = pretokenizer->split(text, pieces);
    EXPECT_TRUE(done) << done.error().text();
    return {pieces.begin(), pieces.end()};
}

std::string repeated(std::string_view unit, size_t count) {
    std::string text;
    for (size_t i = 0; i < count; ++i) text += unit;
    return text;
}

/// Lengths of the slices, in bytes.
std::vector<size_t> slice_lengths(const std::string& text) {
    std::vector<size_t> lengths;
    std::string joined;
    for (const std::string_view slice : cut_slices(text)) {
        lengths.push_back(slice.size());
        joined += slice;
    }
    EXPECT_EQ(joined, text);
    return lengths;
}

using Lengths = std::vector<size_t>;

TEST(Pretokenizer, SplitsWordsByCase) {
    EXPECT_EQ(split("HelloWorld"), (Pieces{"Hello", "World"}));
    EXPECT_EQ(split("XMLHttpRequest"), (Pieces{"XMLHttp", "Request"}));
    EXPECT_EQ(split("iPhone's"), (Pieces{"i", "Phone's"}));
    EXPECT_EQ(split("foo_bar"), (Pieces{"foo", "_bar"}));
    EXPECT_EQ(split("ǅungla ǅ"), (Pieces{"ǅungla", " ǅ"}));
}

TEST(Pretokenizer, KeepsHanApart) {
    EXPECT_EQ(split("日本語のテキスト"), (Pieces{"日本語", "のテキスト"}));
    EXPECT_EQ(split("你好。世界"), (Pieces{"你好", "。", "世界"}));
    EXPECT_EQ(split("(中文)"), (Pieces{"(", "中文", ")"}));
    EXPECT_EQ(split(" 汉字"), (Pieces{" ", "汉字"}));
    EXPECT_EQ(split("中文English混合"), (Pieces{"中文", "English", "混合"}));
}

// Script, not script extension: 〇 and 々 are Han; 、 。 〆 ー are not.
TEST(Pretokenizer, TellsHanByScript) {
    EXPECT_EQ(split("二〇二六"), (Pieces{"二〇二六"}));
    EXPECT_EQ(split("人々"), (Pieces{"人々"}));
    EXPECT_EQ(split("1〇2"), (Pieces{"1〇2"})) << "also a number";
    EXPECT_EQ(split("人、々"), (Pieces{"人", "、", "々"}));
    EXPECT_EQ(split("人〆人"), (Pieces{"人", "〆", "人"}));
    EXPECT_EQ(split("人ー人"), (Pieces{"人", "ー", "人"}));
}

TEST(Pretokenizer, KeepsContractionsOfAnyCase) {
    EXPECT_EQ(split("it's they'RE I'Ll x'd"), (Pieces{"it's", " they'RE", " I'Ll", " x'd"}));
    EXPECT_EQ(split("it'ſ"), (Pieces{"it'ſ"}));
    EXPECT_EQ(split("it's's"), (Pieces{"it's", "'s"}));
    EXPECT_EQ(split("it’s"), (Pieces{"it", "’s"}));  // only the straight apostrophe
    EXPECT_EQ(split("汉's"), (Pieces{"汉", "'s"}));
}

TEST(Pretokenizer, TakesOneLeadingCharacterIntoAWord) {
    EXPECT_EQ(split("“你好”—word"), (Pieces{"“", "你好", "”—", "word"}));
    EXPECT_EQ(split("—word"), (Pieces{"—word"}));
    EXPECT_EQ(split("}/// doc"), (Pieces{"}///", " doc"}));
    EXPECT_EQ(split("\tword"), (Pieces{"\tword"}));
    EXPECT_EQ(split("e\u0301a"), (Pieces{"e\u0301a"}));
}

TEST(Pretokenizer, GroupsNumbersByThree) {
    EXPECT_EQ(split("1234567"), (Pieces{"123", "456", "7"}));
    EXPECT_EQ(split("３４５６"), (Pieces{"３４５", "６"}));
    EXPECT_EQ(split("½３a"), (Pieces{"½３", "a"}));
}

TEST(Pretokenizer, SplitsWhiteSpace) {
    EXPECT_EQ(split("a  b"), (Pieces{"a", " ", " b"}));
    EXPECT_EQ(split("a\n\n  b"), (Pieces{"a", "\n\n", " ", " b"}));
    EXPECT_EQ(split(" \n \r\n x"), (Pieces{" \n \r\n", " x"}));
    EXPECT_EQ(split("a  "), (Pieces{"a", "  "}));
    EXPECT_EQ(split(" ."), (Pieces{" ."}));
    EXPECT_EQ(split("。\n\n"), (Pieces{"。\n\n"}));
    EXPECT_EQ(split("\u00A0\u00A0a"), (Pieces{"\u00A0", "\u00A0a"}));
}

// U+180E is no white space any more, U+001C to U+001F never were for the pattern: both go with punctuation.
TEST(Pretokenizer, SpellsWhiteSpaceOut) {
    EXPECT_EQ(split(" \u180E!"), (Pieces{" \u180E!"}));
    EXPECT_EQ(split(" \x1C!"), (Pieces{" \x1C!"}));
    for (const char* space : {"\t", "\v", "\f", " ", "\u0085", "\u00A0", "\u1680", "\u2000", "\u200A",
                              "\u2028", "\u2029", "\u202F", "\u205F", "\u3000"}) {
        EXPECT_EQ(split(std::string("!") + space + space + "!").size(), space == std::string(" ") ? 3u : 4u)
            << space;
    }
}

TEST(Pretokenizer, SplitsZeroBytesAndNothing) {
    EXPECT_EQ(split(""), Pieces{});
    EXPECT_EQ(split(std::string_view("a\0b", 3)), (Pieces{"a", std::string("\0b", 2)}));
}

TEST(CutSlices, LeavesOrdinaryTextWhole) {
    EXPECT_EQ(slice_lengths(""), Lengths{});
    EXPECT_EQ(slice_lengths("a b"), Lengths{3});
    EXPECT_EQ(slice_lengths(repeated("ab ", 100'000)), Lengths{300'000});
}

TEST(CutSlices, CutsRunsOfOneKind) {
    EXPECT_EQ(slice_lengths(std::string(kRunCharacters, 'a')), Lengths{kRunCharacters});
    EXPECT_EQ(slice_lengths(std::string(kRunCharacters + 1, 'a')), (Lengths{kRunCharacters, 1}));
    EXPECT_EQ(slice_lengths(std::string(kRunCharacters + 1, ' ')), (Lengths{kRunCharacters, 1}));
    EXPECT_EQ(slice_lengths(std::string(2 * kRunCharacters + 1, '\n')),
              (Lengths{kRunCharacters, kRunCharacters, 1}));
    // The slice goes on behind the end of a run; only the run is counted anew.
    EXPECT_EQ(slice_lengths("b " + std::string(kRunCharacters, 'a') + " c"), Lengths{kRunCharacters + 4});
    EXPECT_EQ(slice_lengths("b " + std::string(kRunCharacters + 1, 'a') + " c"),
              (Lengths{kRunCharacters + 2, 3}));
}

TEST(CutSlices, CountsCharactersNotBytes) {
    EXPECT_EQ(slice_lengths(repeated("你", kRunCharacters + 1)), (Lengths{3 * kRunCharacters, 3}));
    EXPECT_EQ(slice_lengths(repeated("\u3000", kRunCharacters + 1)), (Lengths{3 * kRunCharacters, 3}));
}

TEST(CutSlices, CutsAfterSoManyCharacters) {
    const std::string chunk = repeated("é ", kChunkCharacters / 2);
    EXPECT_EQ(slice_lengths(chunk), Lengths{chunk.size()});
    EXPECT_EQ(slice_lengths(chunk + "x"), (Lengths{chunk.size(), 1}));
    EXPECT_EQ(slice_lengths(chunk + chunk + "x"), (Lengths{chunk.size(), chunk.size(), 1}));
}

TEST(CutSlices, StartsRunsAnewInEachChunk) {
    // The run of 'a' crosses the end of the chunk and is under the limit on both sides of it.
    const std::string before = repeated("b ", (kChunkCharacters - 20'000) / 2);
    EXPECT_EQ(slice_lengths(before + std::string(45'000, 'a')), (Lengths{kChunkCharacters, 25'000}));
    EXPECT_EQ(slice_lengths(before + std::string(45'001, 'a')), (Lengths{kChunkCharacters, 25'000, 1}));
}

// In the cut rule white space is Python's str.isspace, which includes U+001C to U+001F; the pattern's is not.
TEST(CutSlices, TakesTheFourSeparatorsForWhiteSpace) {
    const std::string half(kRunCharacters / 2 + 1, 'a');
    for (const char* space : {"\x1C", "\x1F", "\u0085", "\u2028"}) {
        EXPECT_EQ(slice_lengths(fmt::format("{0}{1}{0}", half, space)).size(), 1u);
    }
    for (const char* other : {"\u180E", "\u200B", "\uFEFF"})
        EXPECT_EQ(slice_lengths(fmt::format("{0}{1}{0}", half, other)).size(), 2u);
}

}  // namespace
}  // namespace waste::engine
