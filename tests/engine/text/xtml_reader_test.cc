#include "engine/text/xtml_reader.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::demo_ids;
using test::demo_tokenizer;

const Segment kOpen{"<|open|>", true}, kClose{"<|close|>", true}, kSep{"<|sep|>", true},
    kEnd{"<|end_of_msg|>", true};

/// Events as one line.
std::string events(const std::vector<Segment>& segments) {
    XtmlReader reader(demo_tokenizer());
    std::string line;
    for (const int32_t id : demo_ids(segments)) {
        const XtmlEvent event = reader.push(id);
        if (event.kind == XtmlEvent::Kind::open) line += "(" + event.text;
        for (const auto& attribute : event.attributes)
            line += fmt::format(" {}={}", attribute.name, attribute.value);
        if (event.kind == XtmlEvent::Kind::open) line += ")";
        if (event.kind == XtmlEvent::Kind::close) line += "(/" + event.text + ")";
        if (event.kind == XtmlEvent::Kind::text) line += event.text;
        if (event.kind == XtmlEvent::Kind::message) line += event.text + "(end)";
    }
    return line + reader.finish();
}

TEST(XtmlReader, ReadsWhatTheRendererWrites) {
    const std::vector<ChatMessage> messages = {{"user", "Hi <b>", "", "A \"q\" & &quot; é"},
                                               {"assistant", "Yes", "Hm"}};
    ChatOptions options;
    options.generation_prompt = false;
    EXPECT_EQ(events(*render_chat(ChatFormat::xtml, messages, options)),
              "(message role=user name=A \"q\" & &quot; é)Hi <b>(/message)(end)"
              "(message role=assistant)(think)Hm(/think)(response)Yes(/response)(/message)(end)");
}

TEST(XtmlReader, ReadsDamagedTags) {
    EXPECT_EQ(events({kOpen, kSep, {"a", false}, kClose, kSep}), "()a(/)");
    EXPECT_EQ(events({kOpen, {"t a=\"1\" b=2 c=\"3\"", false}, kSep}), "(t a=1 b=2 c=3)");
    EXPECT_EQ(events({kOpen, {"t a=\"1", false}, kSep}), "(t)");
    EXPECT_EQ(events({kOpen, {"lost", false}, kOpen, {"t", false}, kSep, {"x", false}}), "(t)x");
    EXPECT_EQ(events({kOpen, {"lost", false}, kEnd, {"x", false}, kSep, {"y", false}}), "(end)xy");
    EXPECT_EQ(events({kOpen, {"[t", false}, {"<|media_pad|>", true}, {"]", false}, kSep}), "([t])");
}

TEST(XtmlReader, BoundsATag) {
    const auto event = [](size_t bytes) {
        XtmlReader reader(demo_tokenizer());
        XtmlEvent last;
        for (const int32_t id : demo_ids({kOpen, {std::string(bytes, '#'), false}, kSep}))
            last = reader.push(id);
        return last;
    };
    EXPECT_EQ(event(100).text.size(), 100u);
    EXPECT_LT(event(1 << 20).text.size(), 2 * XtmlReader::kMaxTagBytes);
}

TEST(XtmlReader, IgnoresWhatIsNoToken) {
    XtmlReader reader(demo_tokenizer());
    for (const int32_t id : {-1, -5, 6143, 1 << 30}) EXPECT_EQ(reader.push(id).text, "");
}

}  // namespace
}  // namespace waste::engine
