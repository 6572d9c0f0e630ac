#include "engine/text/vocabulary.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::rank_file;

constexpr int64_t kRoom = 1000;

std::string error_of(const std::string& file, int64_t vocab_size = kRoom) {
    const auto vocabulary = Vocabulary::parse(file, vocab_size, "m");
    return vocabulary ? "" : vocabulary.error().text();
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
    const size_t at = text.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    return text.replace(at, from.size(), to);
}

TEST(Vocabulary, ReadsBytesAndMerges) {
    const auto vocabulary = Vocabulary::parse(rank_file({"ab", "abc", std::string("\0\n", 2)}), kRoom, "m");
    ASSERT_TRUE(vocabulary) << vocabulary.error().text();
    EXPECT_EQ(vocabulary->size(), 259);
    EXPECT_EQ(vocabulary->bytes(97), "a");
    EXPECT_EQ(vocabulary->bytes(257), "abc");
    EXPECT_EQ(vocabulary->find("ab"), 256);
    EXPECT_EQ(vocabulary->find(std::string_view("\0\n", 2)), 258);
    EXPECT_EQ(vocabulary->find("abcd"), std::nullopt);
    EXPECT_EQ(vocabulary->longest_token_bytes(), 3u);
}

TEST(Vocabulary, TakesAnyOrderOfLinesBlankLinesAndLineEnds) {
    std::string file = "YWJj 257\n\n" + rank_file({"ab"});
    EXPECT_EQ(error_of(file), "");
    file.pop_back();  // no line end on the last line
    EXPECT_EQ(error_of(file), "");
    std::string with_cr;
    for (const char c : rank_file({"ab"})) with_cr += c == '\n' ? std::string("\r\n") : std::string(1, c);
    EXPECT_EQ(error_of(with_cr), "");
}

TEST(Vocabulary, SurvivesMoving) {
    auto first = Vocabulary::parse(rank_file({"ab"}), kRoom, "m");
    ASSERT_TRUE(first);
    const Vocabulary second = std::move(*first);
    first = fail(ErrorKind::invalid, "", "");
    EXPECT_EQ(second.find("ab"), 256);
    EXPECT_EQ(second.bytes(256), "ab");
}

TEST(Vocabulary, HoldsTheRanksAgainstTheEmbedding) {
    EXPECT_EQ(error_of(rank_file({"ab"}), 257), "");
    EXPECT_EQ(error_of(rank_file({"ab"}), 256),
              "m: line 257: rank 256 has no row in an embedding of 256 rows");
}

TEST(Vocabulary, RefusesEachKindOfDamage) {
    const std::string good = rank_file({"ab", "cd"});
    EXPECT_EQ(error_of(""), "m: the file is empty");
    EXPECT_EQ(error_of("\n\n"), "m: no token for the single byte 0x00");
    EXPECT_EQ(error_of(replaced(good, "YWI= 256", "YWI=256")),
              "m: line 257: expected a token in base64, a space and its rank");
    EXPECT_EQ(error_of(replaced(good, "YWI= 256", "YWI 256")), "m: line 257: the token is not base64");
    EXPECT_EQ(error_of(replaced(good, "YWI= 256", "YWI\xFF 256")), "m: line 257: the token is not base64");
    EXPECT_EQ(error_of(replaced(good, "YWI= 256", " 256")), "m: line 257: the token is empty");
    for (const char* rank : {"", "x", "-1", "256x", "25.6", " 256", "99999999999999999999"}) {
        EXPECT_EQ(error_of(replaced(good, "YWI= 256", fmt::format("YWI= {}", rank))),
                  "m: line 257: the rank is not a whole number");
    }
    EXPECT_EQ(error_of(replaced(good, "Y2Q= 257", "Y2Q= 256")), "m: line 258: rank 256 is there twice");
    EXPECT_EQ(error_of(replaced(good, "Y2Q= 257", "Y2Q= 258")),
              "m: line 258: rank 258 in a file of 258 tokens: ranks must run from 0 without gaps");
    EXPECT_EQ(error_of(replaced(good, "Y2Q= 257", "YWI= 257")),
              "m: line 258: the token of rank 257 is there twice");
    EXPECT_EQ(error_of(replaced(good, "QQ== 65", "QUE= 65")), "m: no token for the single byte 0x41");
}

TEST(Vocabulary, RefusesWhatIsTooLarge) {
    EXPECT_EQ(error_of(rank_file({std::string(kMaxTokenBytes, 'x')})), "");
    EXPECT_EQ(error_of(rank_file({std::string(kMaxTokenBytes + 1, 'x')})),
              "m: line 257: a token of 4097 bytes; at most 4096 are supported");
    EXPECT_EQ(error_of(std::string(kMaxRankFileBytes + 1, '\n')),
              "m: 67108865 bytes; at most 67108864 are supported");
}

// A file cut after a whole line is a smaller vocabulary, which only the ids of the config can tell. Cut
// anywhere else, it is refused: the last rank lost digits, so it is there twice, or the line is not one.
TEST(Vocabulary, RefusesEveryTruncationInsideALine) {
    const std::string good = rank_file({"ab", "cd", "abcd"});
    for (size_t length = 0; length < good.size(); ++length) {
        const std::string cut = good.substr(0, length);
        const auto vocabulary = Vocabulary::parse(cut, kRoom, "m");
        const bool whole_lines = good[length] == '\n' || cut.ends_with('\n');
        const auto lines = std::count(good.begin(), good.begin() + static_cast<ptrdiff_t>(length) + 1, '\n');
        if (whole_lines && lines >= 256) {
            ASSERT_TRUE(vocabulary) << length << vocabulary.error().text();
            EXPECT_EQ(vocabulary->size(), lines);
        } else {
            EXPECT_FALSE(vocabulary) << length;
        }
    }
}

}  // namespace
}  // namespace waste::engine
