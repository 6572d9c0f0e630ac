#include "engine/text/special_tokens.h"

#include <gtest/gtest.h>

#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::config_naming;

constexpr int32_t kBase = 300;
constexpr int64_t kEnd = kBase + kReservedTokens;

std::string error_of(std::string_view config) {
    const auto special = SpecialTokens::parse(config, kBase, kEnd, "c");
    return special ? "" : special.error().text();
}

TEST(SpecialTokens, AreReservedAndRenamed) {
    const auto special = SpecialTokens::parse(config_naming(301, {"[A]", "[B]"}), kBase, kEnd, "c");
    ASSERT_TRUE(special) << special.error().text();
    EXPECT_EQ(special->name(299), "");
    EXPECT_EQ(special->name(300), "<|reserved_token_300|>");
    EXPECT_EQ(special->name(301), "[A]");
    EXPECT_EQ(special->name(555), "<|reserved_token_555|>");
    EXPECT_EQ(special->name(556), "");
    EXPECT_EQ(special->find("[B]"), 302);
    EXPECT_EQ(special->find("<|reserved_token_302|>"), std::nullopt) << "renamed";
    EXPECT_EQ(special->find(""), std::nullopt);
    EXPECT_TRUE(special->warnings().empty());
}

TEST(SpecialTokens, ReservesWithoutAConfigEntry) {
    const auto special = SpecialTokens::parse("{}", kBase, kEnd, "c");
    ASSERT_TRUE(special);
    EXPECT_EQ(special->find("<|reserved_token_301|>"), 301);
}

TEST(SpecialTokens, IgnoresAdditionalSpecialTokens) {
    const auto special =
        SpecialTokens::parse(R"({"additional_special_tokens": ["<|x|>"]})", kBase, kEnd, "c");
    ASSERT_TRUE(special);
    EXPECT_EQ(special->find("<|x|>"), std::nullopt);
}

// The embedding has two rows fewer than the tokenizer has ids.
TEST(SpecialTokens, BeyondTheEmbeddingAreIgnoredWithAWarning) {
    const auto special =
        SpecialTokens::parse(config_naming(kEnd - 3, {"[A]", "[B]", "[C]"}), kBase, kEnd - 2, "c");
    ASSERT_TRUE(special) << special.error().text();
    EXPECT_EQ(special->find("[A]"), kEnd - 3);
    EXPECT_EQ(special->find("[B]"), std::nullopt);
    EXPECT_EQ(special->name(static_cast<int32_t>(kEnd - 1)), "");
    ASSERT_EQ(special->warnings().size(), 2u);
    EXPECT_EQ(special->warnings()[0], "c: id 554 ('[B]') is ignored: the embedding has 554 rows");
    EXPECT_EQ(special->warnings()[1], "c: 2 ids in all are ignored for that reason");
}

// Two rows more: they may be named, or stay without a token.
TEST(SpecialTokens, AboveTheReservedOnesNeedARow) {
    const auto special = SpecialTokens::parse(config_naming(kEnd, {"[A]"}), kBase, kEnd + 2, "c");
    ASSERT_TRUE(special);
    EXPECT_EQ(special->find("[A]"), kEnd);
    EXPECT_EQ(special->name(static_cast<int32_t>(kEnd + 1)), "");
    EXPECT_TRUE(special->warnings().empty());
}

TEST(SpecialTokens, AreNoneWhereTheRanksFillTheEmbedding) {
    const auto special = SpecialTokens::parse("{}", kBase, kBase, "c");
    ASSERT_TRUE(special);
    EXPECT_EQ(special->name(kBase), "");
}

TEST(SpecialTokens, RefusesEachKindOfDamage) {
    const std::string not_json = "c: not a JSON object in UTF-8";
    for (const char* text : {"", " ", "[]", "7", "null", "{", "{\"a\":}", "{\"a\": \"\xFF\"}", "{} x"}) {
        EXPECT_EQ(error_of(text), not_json) << text;
    }
    EXPECT_EQ(error_of(std::string(1'000'000, '[')), not_json);
    EXPECT_EQ(error_of(R"({"added_tokens_decoder": []})"), "c: added_tokens_decoder: not a JSON object");
    EXPECT_EQ(error_of(R"({"added_tokens_decoder": null})"), "c: added_tokens_decoder: not a JSON object");
    for (const char* key : {"", "x", "-1", "0301", "301 ", "3e2", "99999999999999999999"}) {
        EXPECT_EQ(error_of(std::string(R"({"added_tokens_decoder": {")") + key + R"(": {"content": "x"}}})"),
                  std::string("c: added_tokens_decoder: '") + key + "' is not a token id");
    }
    for (const char* token : {"7", "\"x\"", "[]", "{}", "{\"content\": 7}", "{\"content\": null}"}) {
        EXPECT_EQ(error_of(std::string(R"({"added_tokens_decoder": {"301": )") + token + "}}"),
                  "c: added_tokens_decoder: id 301 has no text in 'content'");
    }
    EXPECT_EQ(error_of(config_naming(301, {""})), "c: added_tokens_decoder: id 301 has an empty name");
    EXPECT_EQ(error_of(config_naming(299, {"x"})),
              "c: added_tokens_decoder names id 299, which is an ordinary token");
    EXPECT_EQ(error_of(config_naming(301, {"x", "x"})), "c: ids 301 and 302 have the same name 'x'");
    EXPECT_EQ(error_of(config_naming(301, {"<|reserved_token_300|>"})),
              "c: ids 300 and 301 have the same name '<|reserved_token_300|>'");
    EXPECT_EQ(error_of(std::string(kMaxTokenizerConfigBytes + 1, ' ')),
              "c: 16777217 bytes; at most 16777216 are supported");
}

TEST(SpecialTokens, RefusesEveryTruncationOfTheDemoConfig) {
    const std::string whole = test::read_demo_file("tokenizer_config.json");
    const std::string trimmed = whole.substr(0, whole.rfind('}') + 1);
    ASSERT_TRUE(SpecialTokens::parse(trimmed, test::kDemoBase, test::kDemoVocabSize, "c"));
    for (size_t length = 0; length < trimmed.size(); ++length) {
        EXPECT_FALSE(
            SpecialTokens::parse(trimmed.substr(0, length), test::kDemoBase, test::kDemoVocabSize, "c"));
    }
}

}  // namespace
}  // namespace waste::engine
