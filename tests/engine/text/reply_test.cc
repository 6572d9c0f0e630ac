#include "engine/text/reply.h"

#include <gtest/gtest.h>

#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::demo_tokenizer;

/// What a reply made of these segments is read as.
ReplyPiece read(const std::vector<Segment>& segments, ChatFormat format, bool thinking) {
    const auto ids = demo_tokenizer().encode_segments(segments);
    EXPECT_TRUE(ids) << ids.error().text();
    ReplyReader reader(demo_tokenizer(), format, thinking);
    ReplyPiece all;
    const auto add = [&all](const ReplyPiece& piece) {
        all.response += piece.response;
        all.reasoning += piece.reasoning;
    };
    for (const int32_t id : *ids) add(reader.push(id));
    add(reader.finish());
    return all;
}

const Segment kOpen{"<|open|>", true}, kClose{"<|close|>", true}, kSep{"<|sep|>", true};

Segment text(const char* content) {
    return {content, false};
}

TEST(ReplyReader, TellsReasoningFromResponse) {
    const auto reply = read({text("Let me see."), kClose, text("think"), kSep, kOpen, text("response"), kSep,
                             text("Four."), kClose, text("response"), kSep, kClose, text("message"), kSep},
                            ChatFormat::xtml, true);
    EXPECT_EQ(reply.reasoning, "Let me see.");
    EXPECT_EQ(reply.response, "Four.");
}

TEST(ReplyReader, CutInTheMiddleOfThinkingHasNoResponse) {
    const auto ids = demo_tokenizer().encode("I wonder whether");
    ReplyReader reader(demo_tokenizer(), ChatFormat::xtml, true);
    for (const int32_t id : *ids) EXPECT_EQ(reader.push(id).response, "");
    EXPECT_TRUE(reader.in_reasoning());
}

TEST(ReplyReader, AnswerWithoutThinking) {
    const auto reply = read({text("Four."), kClose, text("response"), kSep}, ChatFormat::xtml, false);
    EXPECT_EQ(reply.response, "Four.");
    EXPECT_EQ(reply.reasoning, "");
}

TEST(ReplyReader, TagsWithAttributesAreNotShown) {
    const auto reply = read({text("A"), kOpen, text("think"), text(" kind=\"x\""), kSep, text("B"), kClose,
                             text("think"), kSep, text("C")},
                            ChatFormat::xtml, false);
    EXPECT_EQ(reply.response, "AC");
    EXPECT_EQ(reply.reasoning, "B");
}

TEST(ReplyReader, MarkupSpelledAsTextStaysText) {
    const auto reply = read({text("<|close|>think<|sep|>")}, ChatFormat::xtml, false);
    EXPECT_EQ(reply.response, "<|close|>think<|sep|>");
}

TEST(ReplyReader, NeverSplitsACharacter) {
    const auto ids = demo_tokenizer().encode("né 日本 🐘");
    ReplyReader reader(demo_tokenizer(), ChatFormat::xtml, false);
    std::string all;
    for (const int32_t id : *ids) {
        const std::string piece = reader.push(id).response;
        EXPECT_FALSE(first_invalid_utf8(piece)) << piece;
        all += piece;
    }
    EXPECT_EQ(all + reader.finish().response, "né 日本 🐘");
}

TEST(ReplyReader, ImFormatHasNoTags) {
    const auto reply = read({kOpen, text("think"), kSep, text("A")}, ChatFormat::im, true);
    EXPECT_EQ(reply.response, "thinkA");
    EXPECT_EQ(reply.reasoning, "");
}

}  // namespace
}  // namespace waste::engine
