#include "engine/text/merger.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::rank_file;

Vocabulary vocabulary_with(const std::vector<std::string>& merges) {
    auto vocabulary = Vocabulary::parse(rank_file(merges), 100'000, "m");
    EXPECT_TRUE(vocabulary) << vocabulary.error().text();
    return std::move(*vocabulary);
}

std::vector<std::string> pieces_of(const Vocabulary& vocabulary, std::string_view text) {
    std::vector<int32_t> ids;
    Merger(vocabulary).append(text, ids);
    std::vector<std::string> pieces;
    pieces.reserve(ids.size());
    for (const int32_t id : ids) pieces.emplace_back(vocabulary.bytes(id));
    return pieces;
}

/// The rule as it is stated: scan for the lowest rank, the leftmost on ties, join, again.
std::vector<std::string> merge_by_scanning(const Vocabulary& vocabulary, std::string_view text) {
    if (vocabulary.find(text)) return {std::string(text)};
    std::vector<std::string> parts;
    for (const char c : text) parts.emplace_back(1, c);
    for (;;) {
        size_t best = parts.size();
        int32_t best_rank = 0;
        for (size_t i = 0; i + 1 < parts.size(); ++i) {
            const auto rank = vocabulary.find(parts[i] + parts[i + 1]);
            if (rank && (best == parts.size() || *rank < best_rank)) {
                best = i;
                best_rank = *rank;
            }
        }
        if (best == parts.size()) return parts;
        parts[best] += parts[best + 1];
        parts.erase(parts.begin() + static_cast<ptrdiff_t>(best) + 1);
    }
}

using Pieces = std::vector<std::string>;

TEST(Merger, JoinsTheLowestRankFirst) {
    const Vocabulary vocabulary = vocabulary_with({"bc", "ab"});
    EXPECT_EQ(pieces_of(vocabulary, "abc"), (Pieces{"a", "bc"}));
}

TEST(Merger, JoinsTheLeftmostOnTies) {
    const Vocabulary vocabulary = vocabulary_with({"aa"});
    EXPECT_EQ(pieces_of(vocabulary, "aaa"), (Pieces{"aa", "a"}));
    EXPECT_EQ(pieces_of(vocabulary, "aaaaa"), (Pieces{"aa", "aa", "a"}));
}

TEST(Merger, TakesAWholeTokenEvenIfMergingWouldMissIt) {
    const Vocabulary vocabulary = vocabulary_with({"bc", "ab", "abc!"});
    EXPECT_EQ(pieces_of(vocabulary, "abc!"), (Pieces{"abc!"}));
    EXPECT_EQ(pieces_of(vocabulary, "abc!?"), (Pieces{"a", "bc", "!", "?"}));
}

TEST(Merger, FormsATokenFromPartsThatNoMergeListWouldName) {
    // "abcd" can only come from "ab" + "cd" here, although it has a lower rank than "cd".
    const Vocabulary vocabulary = vocabulary_with({"abcd", "ab", "cd"});
    EXPECT_EQ(pieces_of(vocabulary, "xabcd"), (Pieces{"x", "abcd"}));
}

TEST(Merger, EncodesNothingAsNothing) {
    EXPECT_TRUE(pieces_of(vocabulary_with({}), "").empty());
}

TEST(Merger, AgreesWithScanningOnRandomVocabularies) {
    std::mt19937 random(1);
    for (int round = 0; round < 200; ++round) {
        std::set<std::string> tokens;
        while (tokens.size() < 40) {
            std::string token;
            for (size_t length = 2 + random() % 5; length > 0; --length)
                token += static_cast<char>('a' + random() % 3);
            tokens.insert(token);
        }
        std::vector<std::string> merges(tokens.begin(), tokens.end());
        std::shuffle(merges.begin(), merges.end(), random);
        const Vocabulary vocabulary = vocabulary_with(merges);
        for (int i = 0; i < 20; ++i) {
            std::string text;
            for (size_t length = random() % 60; length > 0; --length)
                text += static_cast<char>('a' + random() % 3);
            if (text.empty()) continue;
            ASSERT_EQ(pieces_of(vocabulary, text), merge_by_scanning(vocabulary, text)) << text;
        }
    }
}

}  // namespace
}  // namespace waste::engine
