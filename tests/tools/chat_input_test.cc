#include "tools/chat_input.h"

#include <gtest/gtest.h>

#include <deque>

namespace waste::tools {
namespace {

/// Lines as if they were typed; empty ones where a prefilled line is only confirmed.
class Script : public LineReader {
  public:
    explicit Script(std::deque<Line> lines) : lines_(std::move(lines)) {}
    Line read(const std::string& prompt, const std::string& prefill) override {
        prompts += prompt;
        if (confirm) return {Line::Status::line, prefill};
        if (lines_.empty()) return {Line::Status::end};
        Line line = lines_.front();
        lines_.pop_front();
        return line;
    }
    void remember(const std::string&) override {}
    bool can_edit() const override { return true; }

    std::string prompts;
    bool confirm = false;  ///< each line as it is prefilled

  private:
    std::deque<Line> lines_;
};

Line entry_of(const std::vector<std::string>& lines) {
    std::deque<Line> typed;
    for (const std::string& line : lines) typed.push_back({Line::Status::line, line});
    Script script(typed);
    return read_entry(script, "> ");
}

std::string text_of(const std::vector<std::string>& lines) {
    const Line entry = entry_of(lines);
    return entry.status == Line::Status::line ? entry.text : "no entry";
}

TEST(ChatEntry, IsALine) {
    EXPECT_EQ(text_of({"hello", "next"}), "hello");
    EXPECT_EQ(text_of({""}), "");
    EXPECT_EQ(entry_of({}).status, Line::Status::end);
}

TEST(ChatEntry, GoesOnBehindABackslash) {
    EXPECT_EQ(text_of({"a\\", "b\\", "c", "d"}), "a\nb\nc");
    EXPECT_EQ(text_of({"a\\", "", "d"}), "a\n");
    EXPECT_EQ(text_of({"a\\"}), "a") << "the input's end ends the entry";
    EXPECT_EQ(text_of({"a\\", "\"\"\"", "b"}), "a\n\"\"\"") << "a block begins in the first line only";
}

TEST(ChatEntry, IsABlock) {
    EXPECT_EQ(text_of({"\"\"\"", "a", "", " b\\", "\"\"\"", "c"}), "a\n\n b\\");
    EXPECT_EQ(text_of({"\"\"\"a", "b\"\"\"", "c"}), "a\nb");
    EXPECT_EQ(text_of({"\"\"\"a\"\"\"", "b"}), "a");
    EXPECT_EQ(text_of({"\"\"\"", "\"\"\"", "b"}), "");
    EXPECT_EQ(text_of({"\"\"\"", "a"}), "a");
    // What is in a block is said, whatever it looks like.
    EXPECT_EQ(parse_chat_line(text_of({"\"\"\"", "/quit", "\"\"\""})), (ChatInput{ChatVerb::say, "/quit"}));
}

TEST(ChatEntry, PromptsTellLinesThatGoOn) {
    Script script({{Line::Status::line, "a\\"}, {Line::Status::line, "b"}});
    read_entry(script, "> ");
    EXPECT_EQ(script.prompts, "> . ");
}

TEST(ChatEntry, AnInterruptDropsAll) {
    Script script({{Line::Status::line, "\"\"\""}, {Line::Status::line, "a"}, {Line::Status::interrupted}});
    EXPECT_EQ(read_entry(script, "> ").status, Line::Status::interrupted);
}

TEST(ChatEntry, PrefilledLinesGiveTheTextBack) {
    for (const char* text : {"hello", "", "two\nlines", "ends\n", "\nbegins", "back\\", "back\\\nslash",
                             "/quit", "//", "\"\"\"quoted", "a\n\n\nb", "/a\n/b"}) {
        Script script({});
        script.confirm = true;
        const Line entry = read_entry(script, "> ", entry_lines(text));
        EXPECT_EQ(parse_chat_line(entry.text), (ChatInput{ChatVerb::say, text})) << text;
    }
}

std::string error_of(const std::string& line) {
    const auto input = parse_chat_line(line);
    return input ? "accepted" : input.error().text();
}

TEST(ChatLine, IsSaidOrACommand) {
    EXPECT_EQ(parse_chat_line("hello /undo"), (ChatInput{ChatVerb::say, "hello /undo"}));
    EXPECT_EQ(parse_chat_line("//undo"), (ChatInput{ChatVerb::say, "/undo"}));
    EXPECT_EQ(parse_chat_line("/undo"), (ChatInput{ChatVerb::undo, ""}));
    EXPECT_EQ(parse_chat_line("/undo  "), (ChatInput{ChatVerb::undo, ""}));
    EXPECT_EQ(parse_chat_line("/save"), (ChatInput{ChatVerb::save, ""}));
    EXPECT_EQ(parse_chat_line("/save  a b.s "), (ChatInput{ChatVerb::save, "a b.s"}));
    EXPECT_EQ(parse_chat_line("/system Be\nkind."), (ChatInput{ChatVerb::system, "Be\nkind."}));
    EXPECT_EQ(parse_chat_line("/set temp 0.5"), (ChatInput{ChatVerb::set, "temp 0.5"}));
    EXPECT_EQ(error_of("/undo 3"), "/undo: takes nothing behind it");
    EXPECT_EQ(error_of("/load"), "/load: is used as /load FILE");
    EXPECT_EQ(error_of("/branch"), "/branch: is used as /branch NAME");
    EXPECT_EQ(error_of("/und"),
              "/und: is not a command; /help lists them, and // begins a message that starts with /");
    EXPECT_EQ(error_of("/"),
              "/: is not a command; /help lists them, and // begins a message that starts with /");
}

TEST(ChatLine, HelpNamesEveryCommand) {
    const std::string help = chat_help();
    for (const char* command : {"/save", "/load", "/undo", "/retry", "/edit", "/branch", "/stats", "/system",
                                "/set", "/help", "/quit"}) {
        EXPECT_NE(help.find(command), std::string::npos) << command;
    }
}

}  // namespace
}  // namespace waste::tools
