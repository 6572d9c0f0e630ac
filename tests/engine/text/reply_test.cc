#include "engine/text/reply.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/text/utf8.h"
#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::demo_ids;
using test::demo_tokenizer;
using Segments = std::vector<Segment>;

const Segment kOpen{"<|open|>", true}, kClose{"<|close|>", true}, kSep{"<|sep|>", true},
    kEnd{"<|end_of_msg|>", true};

Segment text(const char* content) {
    return {content, false};
}

/// A tokenizer with the markers of im, tool calls included.
const Tokenizer& im_tokenizer() {
    static const auto tokenizer = Tokenizer::create(
        test::rank_file({}),
        test::config_naming(
            256, {"<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>",
                  "<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>",
                  "<|tool_call_argument_begin|>", "<|tool_call_end|>"}),
        512, "im");
    EXPECT_TRUE(tokenizer) << tokenizer.error().text();
    return *tokenizer;
}

struct Reply {
    std::string response, reasoning;
    std::vector<ToolCall> calls;
    bool in_reasoning = false, in_tool_call = false, ended = false;
    std::string closing;
};

Reply read_ids(const Tokenizer& tokenizer, const std::vector<int32_t>& ids, ChatFormat format,
               bool thinking) {
    ReplyReader reader(tokenizer, format, thinking);
    Reply reply;
    const auto add = [&reply](const ReplyPiece& piece) {
        if (piece.reasoning_was_response) {
            EXPECT_EQ(piece.response, reply.reasoning);
            reply.reasoning.clear();
        }
        reply.response += piece.response;
        reply.reasoning += piece.reasoning;
    };
    for (const int32_t id : ids) add(reader.push(id));
    reply.closing = test::shown(reader.closing());
    add(reader.finish());
    reply.calls = reader.tool_calls();
    reply.in_reasoning = reader.in_reasoning();
    reply.in_tool_call = reader.in_tool_call();
    reply.ended = reader.ended();
    return reply;
}

/// What a reply made of these segments is read as.
Reply read(const Segments& segments, ChatFormat format, bool thinking) {
    return read_ids(demo_tokenizer(), demo_ids(segments), format, thinking);
}
Reply read_xtml(const Segments& segments, bool thinking) {
    return read(segments, ChatFormat::xtml, thinking);
}

TEST(ReplyReader, TellsReasoningFromResponse) {
    const auto reply =
        read_xtml({text("Let me see."), kClose, text("think"), kSep, kOpen, text("response"), kSep,
                   text("Four."), kClose, text("response"), kSep, kClose, text("message"), kSep},
                  true);
    EXPECT_EQ(reply.reasoning, "Let me see.");
    EXPECT_EQ(reply.response, "Four.");
    EXPECT_FALSE(reply.in_reasoning);
    EXPECT_EQ(reply.closing, "<|end_of_msg|>");
}

TEST(ReplyReader, CutInTheMiddleOfThinkingHasNoResponse) {
    const auto reply = read_xtml({text("I wonder whether")}, true);
    EXPECT_EQ(reply.response, "");
    EXPECT_EQ(reply.reasoning, "I wonder whether");
    EXPECT_TRUE(reply.in_reasoning);
}

TEST(ReplyReader, AnswerWithoutThinking) {
    const auto reply = read_xtml({text("Four."), kClose, text("response"), kSep}, false);
    EXPECT_EQ(reply.response, "Four.");
    EXPECT_EQ(reply.reasoning, "");
}

// The prompt opened a think element, the model answered at once and closed the response.
TEST(ReplyReader, ResponseClosedWithoutClosingThinkingIsTheResponse) {
    const auto reply = read_xtml(
        {text("Four, née 4."), kClose, text("response"), kSep, kClose, text("message"), kSep}, true);
    EXPECT_EQ(reply.response, "Four, née 4.");
    EXPECT_EQ(reply.reasoning, "");
    EXPECT_FALSE(reply.in_reasoning);
    EXPECT_EQ(reply.closing, "<|end_of_msg|>");
}

TEST(ReplyReader, ResponseOpenedWithoutClosingThinking) {
    const auto reply = read_xtml(
        {text("Hm."), kOpen, text("response"), kSep, text("Four."), kClose, text("response"), kSep}, true);
    EXPECT_EQ(reply.reasoning, "Hm.");
    EXPECT_EQ(reply.response, "Four.");
    EXPECT_EQ(reply.closing, "<|close|>{message}<|sep|><|end_of_msg|>");
}

TEST(ReplyReader, TagsWithAttributesAreNotShown) {
    const auto reply = read_xtml({text("A"), kOpen, text("think"), text(" kind=\"x\""), kSep, text("B"),
                                  kClose, text("think"), kSep, text("C")},
                                 false);
    EXPECT_EQ(reply.response, "AC");
    EXPECT_EQ(reply.reasoning, "B");
}

TEST(ReplyReader, MarkupSpelledAsTextStaysText) {
    EXPECT_EQ(read_xtml({text("<|close|>think<|sep|>")}, false).response, "<|close|>think<|sep|>");
}

TEST(ReplyReader, NothingFollowsTheEnd) {
    const auto reply = read_xtml({text("A"), kEnd, text("B"), kOpen, text("think"), kSep, text("C")}, false);
    EXPECT_TRUE(reply.ended);
    EXPECT_EQ(reply.response, "A");
    EXPECT_EQ(reply.reasoning, "");
    EXPECT_EQ(reply.closing, "");
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

// A section of tool calls is calls and nothing else, though no tool was declared.
TEST(ReplyReader, ToolCallsAreNeverText) {
    ChatMessage message{"assistant", "Wait."};
    message.tool_calls = {
        {"", "tide", R"({"place": "Bre\"st", "n": 2, "deep": {"a": [null, 1.5]}, "yes": true})"},
        {"", "moon", ""},
        {"", "sun", "{\"broken"}};
    ChatOptions options;
    options.generation_prompt = false;
    options.thinking = false;
    const auto segments = render_chat(ChatFormat::xtml, {&message, 1}, options);
    ASSERT_TRUE(segments);
    ReplyReader reader(demo_tokenizer(), ChatFormat::xtml, ReplyReader::Start::message);
    const auto ids = demo_ids(*segments);
    std::string shown;
    size_t begin = 0;  // behind the message's own tag
    while (demo_tokenizer().bytes(ids[begin]) != "<|sep|>") ++begin;
    for (size_t i = begin + 1; i < ids.size(); ++i) {
        const ReplyPiece piece = reader.push(ids[i]);
        shown += piece.response + piece.reasoning;
    }
    EXPECT_EQ(shown, "Wait.");
    EXPECT_EQ(reader.tool_calls(), message.tool_calls);
    EXPECT_TRUE(reader.ended());
}

TEST(ReplyReader, CallsThatAreNotQuiteRightAreKept) {
    const auto reply = read_xtml({kOpen,
                                  text("tools"),
                                  kSep,
                                  text("stray"),
                                  kOpen,
                                  text("call tool=\"a\""),
                                  kSep,
                                  kOpen,
                                  text("argument key=\"n\" type=\"number\""),
                                  kSep,
                                  text("many"),
                                  kOpen,
                                  text("call tool=\"b&amp;\""),
                                  kSep,
                                  kOpen,
                                  text("argument key=\"k\" type=\"string\""),
                                  kSep,
                                  text("v"),
                                  kClose,
                                  text("tools"),
                                  kSep,
                                  kOpen,
                                  text("response"),
                                  kSep,
                                  text("Done.")},
                                 false);
    // The first call's argument was never closed, so it is not one; the second ends with the section.
    EXPECT_EQ(reply.calls, (std::vector<ToolCall>{{"", "a", ""}, {"", "b&", R"({"k": "v"})"}}));
    EXPECT_EQ(reply.response, "Done.");
}

TEST(ReplyReader, CutInACallIsNoCall) {
    const auto reply = read_xtml({kOpen, text("tools"), kSep, kOpen, text("call tool=\"a\""), kSep}, false);
    EXPECT_TRUE(reply.in_tool_call);
    EXPECT_TRUE(reply.calls.empty());
    EXPECT_EQ(reply.closing,
              "<|close|>{call}<|sep|><|close|>{tools}<|sep|><|close|>{message}<|sep|><|end_of_msg|>");
}

// Wherever a reply is cut, its closing makes a message of it that reads as the same reply.
TEST(ReplyReader, ClosesACutReply) {
    EXPECT_EQ(read_xtml({text("Fo")}, false).closing,
              "<|close|>{response}<|sep|><|close|>{message}<|sep|><|end_of_msg|>");
    EXPECT_EQ(
        read_xtml({text("Hm")}, true).closing,
        "<|close|>{think}<|sep|><|open|>{response}<|sep|><|close|>{response}<|sep|><|close|>{message}<|sep|>"
        "<|end_of_msg|>");
    // Inside tags.
    EXPECT_EQ(read_xtml({text("Fo"), kClose, text("res")}, false).closing,
              "{ponse}<|sep|><|close|>{message}<|sep|><|end_of_msg|>");
    EXPECT_EQ(read_xtml({text("Fo"), kClose, text("zzz")}, false).closing,
              "<|sep|><|close|>{response}<|sep|><|close|>{message}<|sep|><|end_of_msg|>");
    EXPECT_EQ(read_xtml({text("Hm"), kClose, text("think"), kSep, kOpen, text("resp")}, true).closing,
              "{onse}<|sep|><|close|>{response}<|sep|><|close|>{message}<|sep|><|end_of_msg|>");
    EXPECT_EQ(read_xtml({kOpen, text("b")}, false).closing,
              "<|sep|><|close|>{b}<|sep|><|close|>{response}<|sep|><|close|>{message}<|sep|><|end_of_msg|>");
}

TEST(ReplyReader, ClosingIsWholeAtEveryCut) {
    const auto ids = demo_ids({text("Hm, né."),
                               kClose,
                               text("think"),
                               kSep,
                               kOpen,
                               text("response"),
                               kSep,
                               text("Four."),
                               kClose,
                               text("response"),
                               kSep,
                               kOpen,
                               text("tools"),
                               kSep,
                               kOpen,
                               text("call"),
                               text(" tool"),
                               text("=\""),
                               text("a"),
                               text("\""),
                               kSep,
                               kOpen,
                               text("argument key=\"k\" type=\"string\""),
                               kSep,
                               text("v"),
                               kClose,
                               text("argument"),
                               kSep,
                               kClose,
                               text("call"),
                               kSep,
                               kClose,
                               text("tools"),
                               kSep,
                               kClose,
                               text("message"),
                               kSep});
    for (size_t n = 0; n <= ids.size(); ++n) {
        ReplyReader cut(demo_tokenizer(), ChatFormat::xtml, true);
        for (size_t i = 0; i < n; ++i) cut.push(ids[i]);
        std::vector<int32_t> whole(ids.begin(), ids.begin() + static_cast<std::ptrdiff_t>(n));
        const auto closing = demo_ids(cut.closing());
        whole.insert(whole.end(), closing.begin(), closing.end());
        const Reply reply = read_ids(demo_tokenizer(), whole, ChatFormat::xtml, true);
        EXPECT_TRUE(reply.ended) << n;
        EXPECT_TRUE(std::string("Hm, né.").starts_with(reply.reasoning) || n < 8)
            << n << ": " << reply.reasoning;
        EXPECT_TRUE(std::string("Four.").starts_with(reply.response)) << n << ": " << reply.response;
        // The end of the message is its last token, and the only one of its kind.
        EXPECT_EQ(std::count(whole.begin(), whole.end(), *demo_tokenizer().special("<|end_of_msg|>")), 1)
            << n;
    }
}

TEST(ReplyReader, ImFormatHasNoTags) {
    const auto reply = read({kOpen, text("think"), kSep, text("A")}, ChatFormat::im, true);
    EXPECT_EQ(reply.response, "thinkA");
    EXPECT_EQ(reply.reasoning, "");
    EXPECT_EQ(reply.closing, "<|im_end|>");
}

TEST(ReplyReader, ImToolCallsAreNeverText) {
    const Segments segments = {text("Wait."),
                               {"<|tool_calls_section_begin|>", true},
                               {"<|tool_call_begin|>", true},
                               text("functions.tide:0"),
                               {"<|tool_call_argument_begin|>", true},
                               text(" {\"place\": \"Brest\"}\n"),
                               {"<|tool_call_end|>", true},
                               {"<|tool_call_begin|>", true},
                               text("moon"),
                               {"<|tool_call_argument_begin|>", true},
                               text("{}")};
    auto ids = im_tokenizer().encode_segments(segments);
    ASSERT_TRUE(ids);
    auto reply = read_ids(im_tokenizer(), *ids, ChatFormat::im, false);
    EXPECT_EQ(reply.response, "Wait.");
    EXPECT_EQ(reply.calls, (std::vector<ToolCall>{{"functions.tide:0", "tide", "{\"place\": \"Brest\"}"}}));
    EXPECT_TRUE(reply.in_tool_call);
    EXPECT_EQ(reply.closing, "<|tool_call_end|><|tool_calls_section_end|><|im_end|>");
    const auto rest = im_tokenizer().encode_segments(
        Segments{{"<|tool_call_end|>", true}, {"<|tool_calls_section_end|>", true}, text("Done.")});
    ids->insert(ids->end(), rest->begin(), rest->end());
    reply = read_ids(im_tokenizer(), *ids, ChatFormat::im, false);
    EXPECT_EQ(reply.response, "Wait.Done.");
    ASSERT_EQ(reply.calls.size(), 2u);
    EXPECT_EQ(reply.calls[1], (ToolCall{"moon", "moon", "{}"}));
    EXPECT_EQ(reply.closing, "<|im_end|>");
}

// Any tokens in any order: no markup in what is shown, whole characters only, and a closing that ends the message.
TEST(ReplyReader, SurvivesRandomTokens) {
    std::mt19937 random(1);
    const std::vector<int32_t> favourites =
        demo_ids({kOpen, kClose, kSep, text("think"), text("response"), text("tools"), text("call"),
                  text("argument"), text("json"), text("message"), text(" tool=\"a\""), text("é")});
    for (int round = 0; round < 2000; ++round) {
        std::vector<int32_t> ids;
        for (int i = 0; i < 60; ++i) {
            ids.push_back(random() % 4 != 0 ? favourites[random() % favourites.size()]
                                            : static_cast<int32_t>(random() % test::kDemoVocabSize));
        }
        for (const bool thinking : {false, true}) {
            ReplyReader reader(demo_tokenizer(), ChatFormat::xtml, thinking);
            for (const int32_t id : ids) {
                const ReplyPiece piece = reader.push(id);
                ASSERT_FALSE(first_invalid_utf8(piece.response));
                ASSERT_FALSE(first_invalid_utf8(piece.reasoning));
                ASSERT_EQ(piece.response.find("<|"), std::string::npos);
            }
            const bool had_ended = reader.ended();
            for (const int32_t id : demo_ids(reader.closing())) reader.push(id);
            ASSERT_TRUE(reader.ended());
            ASSERT_TRUE(!had_ended || reader.closing().empty());
        }
    }
}

}  // namespace
}  // namespace waste::engine
