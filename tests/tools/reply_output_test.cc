#include "tools/reply_output.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>

namespace waste::tools {
namespace {

using engine::Segment;

std::string read_file(const std::string& name) {
    std::ifstream file(std::string(WASTE_TEST_DATA) + "/demo-model/" + name, std::ios::binary);
    EXPECT_TRUE(file.is_open()) << name;
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const engine::Tokenizer& tokenizer() {
    static const auto made = engine::Tokenizer::create(
        read_file("tiktoken.model"), read_file("tokenizer_config.json"), 6144, "demo-model");
    EXPECT_TRUE(made) << made.error().text();
    return *made;
}

struct Shown {
    std::string out, err, text, reasoning;
};

Shown shown(const std::vector<Segment>& reply, ReplyOutput::Style style) {
    const auto ids = tokenizer().encode_segments(reply);
    EXPECT_TRUE(ids);
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    ReplyOutput output(&tokenizer(), engine::ChatFormat::xtml, {}, style);
    for (const int32_t id : *ids) EXPECT_EQ(output.push(id), engine::OnTokenAnswer::keep_going);
    output.finish();
    fflush(stdout);
    return {testing::internal::GetCapturedStdout(), testing::internal::GetCapturedStderr(), output.text(),
            output.reasoning()};
}

const Segment kOpen{"<|open|>", true}, kClose{"<|close|>", true}, kSep{"<|sep|>", true};

Segment text(const char* content) {
    return {content, false};
}

// A model that was told of no tools may call one all the same.
TEST(ReplyOutput, CallsOfToolsAreToldButNotText) {
    const std::vector<Segment> reply = {text("Wait."),
                                        kClose,
                                        text("response"),
                                        kSep,
                                        kOpen,
                                        text("tools"),
                                        kSep,
                                        kOpen,
                                        text("call tool=\"tide\""),
                                        kSep,
                                        kOpen,
                                        text("argument key=\"n\" type=\"number\""),
                                        kSep,
                                        text("2"),
                                        kClose,
                                        text("argument"),
                                        kSep,
                                        kClose,
                                        text("call"),
                                        kSep,
                                        kClose,
                                        text("tools"),
                                        kSep};
    const Shown told = shown(reply, {false, false, false});
    EXPECT_EQ(told.out, "Wait.\n");
    EXPECT_EQ(told.err, "[calls tide {\"n\": 2}]\n");
    EXPECT_EQ(told.text, "Wait.");
    const Shown quiet = shown(reply, {false, true, false});
    EXPECT_EQ(quiet.out, "Wait.\n");
    EXPECT_EQ(quiet.err, "");
    EXPECT_EQ(shown(reply, {true, false, false}).out, "");
}

TEST(ReplyOutput, AnAnswerThatNeverThoughtIsAnAnswer) {
    const Shown told = shown({text("Four."), kClose, text("response"), kSep}, {false, true, true});
    EXPECT_EQ(told.out, "Four.\n");
    EXPECT_EQ(told.text, "Four.");
    EXPECT_EQ(told.reasoning, "");
}

TEST(ReplyOutput, CutInThinkingIsNoAnswer) {
    const Shown told = shown({text("I wonder")}, {false, false, true});
    EXPECT_EQ(told.out, "");
    EXPECT_EQ(told.err, "I wonder");
    EXPECT_EQ(told.reasoning, "I wonder");
}

}  // namespace
}  // namespace waste::tools
