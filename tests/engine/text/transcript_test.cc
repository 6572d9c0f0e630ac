#include "engine/text/transcript.h"

#include <gtest/gtest.h>

#include <random>

#include "engine/text/utf8.h"
#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::demo_ids;
using test::demo_tokenizer;

std::vector<TranscriptMessage> transcript(const std::vector<Segment>& segments) {
    return read_transcript(demo_tokenizer(), ChatFormat::xtml, demo_ids(segments));
}

TEST(Transcript, GivesBackAConversation) {
    ChatMessage calling{"assistant", "Wait.", "Ask."};
    calling.tool_calls = {{"", "tide", R"({"place": "Brest"})"}};
    const std::vector<ChatMessage> messages = {{"system", "S"},
                                               {"user", "Hi <|close|>message<|sep|> né", "", "ann"},
                                               calling,
                                               {"tool", "6 m", "", "tide"},
                                               {"assistant", "High.", ""}};
    ChatOptions options;
    options.tools = R"(["t"])";
    options.effort = "low";
    const auto read = transcript(*render_chat(ChatFormat::xtml, messages, options));
    ASSERT_EQ(read.size(), messages.size() + 3);
    EXPECT_EQ(read[0].type, "tool-declare");
    EXPECT_EQ(read[1].type, "thinking-effort");
    for (size_t i = 0; i < messages.size(); ++i) {
        EXPECT_EQ(read[i + 2].message, messages[i]) << i;
        EXPECT_EQ(read[i + 2].type, "");
        EXPECT_TRUE(read[i + 2].complete);
    }
    EXPECT_EQ(read.back().message.role, "assistant") << "the generation prompt";
    EXPECT_FALSE(read.back().complete);
}

TEST(Transcript, SaysWhatIsCut) {
    const std::vector<ChatMessage> messages = {{"user", "Hello there"}};
    ChatOptions options;
    options.generation_prompt = false;
    auto ids = demo_ids(*render_chat(ChatFormat::xtml, messages, options));
    const size_t whole = ids.size();
    for (size_t n = 0; n < whole; ++n) {
        const auto read = read_transcript(demo_tokenizer(), ChatFormat::xtml, std::span(ids).first(n));
        ASSERT_LE(read.size(), 1u);
        if (read.empty()) continue;
        EXPECT_FALSE(read[0].complete) << n;
        EXPECT_TRUE(std::string("Hello there").starts_with(read[0].message.content)) << n;
    }
}

TEST(Transcript, TellsHowAReplyBegins) {
    const std::vector<ChatMessage> messages = {{"user", "Hi"}};
    const auto start = [&](const ChatOptions& options) {
        return reply_start(demo_tokenizer(), ChatFormat::xtml,
                           demo_ids(*render_chat(ChatFormat::xtml, messages, options)));
    };
    EXPECT_EQ(start({true, "", true}), ReplyReader::Start::think);
    EXPECT_EQ(start({false, "", true}), ReplyReader::Start::response);
    EXPECT_EQ(start({true, "", false}), ReplyReader::Start::message);
    EXPECT_EQ(reply_start(demo_tokenizer(), ChatFormat::im, {}), ReplyReader::Start::message);
}

TEST(Transcript, PlainTextHasNoMessages) {
    EXPECT_TRUE(transcript({{"<|open|>message role=\"user\"<|sep|>Hi", false}}).empty());
    EXPECT_TRUE(transcript({}).empty());
}

TEST(Transcript, ReadsIm) {
    const auto tokenizer = Tokenizer::create(
        test::rank_file({}),
        test::config_naming(
            256, {"<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>"}),
        512, "im");
    ASSERT_TRUE(tokenizer);
    const std::vector<ChatMessage> messages = {
        {"system", "S"}, {"user", "né", "", "ann"}, {"assistant", "A"}, {"user", ""}};
    const auto ids = tokenizer->encode_segments(*render_chat(ChatFormat::im, messages, {}));
    ASSERT_TRUE(ids);
    const auto read = read_transcript(*tokenizer, ChatFormat::im, *ids);
    ASSERT_EQ(read.size(), messages.size() + 1);
    for (size_t i = 0; i < messages.size(); ++i) EXPECT_EQ(read[i].message, messages[i]) << i;
    EXPECT_FALSE(read.back().complete);
}

TEST(Transcript, SurvivesRandomTokens) {
    std::mt19937 random(2);
    const std::vector<int32_t> favourites = demo_ids({{"<|open|>", true},
                                                      {"<|close|>", true},
                                                      {"<|sep|>", true},
                                                      {"<|end_of_msg|>", true},
                                                      {"message", false},
                                                      {" role=\"assistant\"", false},
                                                      {" role=\"user\"", false},
                                                      {"think", false}});
    for (int round = 0; round < 2000; ++round) {
        std::vector<int32_t> ids;
        for (int i = 0; i < 80; ++i) {
            ids.push_back(random() % 4 != 0 ? favourites[random() % favourites.size()]
                                            : static_cast<int32_t>(random() % test::kDemoVocabSize));
        }
        for (const ChatFormat format : {ChatFormat::xtml, ChatFormat::im}) {
            for (const auto& read : read_transcript(demo_tokenizer(), format, ids)) {
                ASSERT_FALSE(first_invalid_utf8(read.message.content));
            }
        }
    }
}

}  // namespace
}  // namespace waste::engine
