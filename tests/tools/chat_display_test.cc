#include "tools/chat_display.h"

#include <gtest/gtest.h>

namespace waste::tools {
namespace {

struct Shown {
    std::string out, err;
};

Shown shown(ShowThinking thinking, bool terminal, const std::vector<engine::ReplyPiece>& pieces,
            const std::vector<engine::ToolCall>& calls = {}) {
    Shown result;
    ChatDisplay display(thinking, {[&](std::string_view text) { result.out += text; }, terminal},
                        {[&](std::string_view text) { result.err += text; }, terminal});
    for (const auto& piece : pieces) display.show(piece);
    for (const auto& call : calls) display.show_call(call);
    display.finish();
    return result;
}

const std::vector<engine::ReplyPiece> kReply = {{"", "Let me "}, {"", "see."}, {"Fo", ""}, {"ur.", ""}};

TEST(ChatDisplay, KeepsThinkingApart) {
    const Shown plain = shown(ShowThinking::apart, false, kReply);
    EXPECT_EQ(plain.out, "Four.\n");
    EXPECT_EQ(plain.err, "Let me see.\n");
    const Shown terminal = shown(ShowThinking::apart, true, kReply);
    EXPECT_EQ(terminal.out, "Four.\n");
    EXPECT_EQ(terminal.err, "\033[2mLet me see.\033[0m\n");
}

TEST(ChatDisplay, HidesThinking) {
    const Shown plain = shown(ShowThinking::hide, false, kReply);
    EXPECT_EQ(plain.out, "Four.\n");
    EXPECT_EQ(plain.err, "");
    EXPECT_EQ(shown(ShowThinking::hide, true, kReply).err, "\033[2mthinking ...\033[0m\n");
}

TEST(ChatDisplay, FoldsThinkingIntoTheAnswer) {
    const Shown plain = shown(ShowThinking::fold, false, kReply);
    EXPECT_EQ(plain.out, "Let me see.\nFour.\n");
    EXPECT_EQ(plain.err, "");
}

TEST(ChatDisplay, CutInThinkingLeavesNoColourBehind) {
    const Shown cut = shown(ShowThinking::apart, true, {{"", "Hm\n"}});
    EXPECT_EQ(cut.out, "");
    EXPECT_EQ(cut.err, "\033[2mHm\n\033[0m");
}

// An answer that seemed to be reasoning is an answer: all of it is on stdout.
TEST(ChatDisplay, WhatTurnsOutToBeTheAnswerIsShownAsOne) {
    const std::vector<engine::ReplyPiece> pieces = {{"", "Fo"}, {"", "ur."}, {"Four.", "", true}};
    EXPECT_EQ(shown(ShowThinking::apart, false, pieces).out, "Four.\n");
    EXPECT_EQ(shown(ShowThinking::hide, false, pieces).out, "Four.\n");
    EXPECT_EQ(shown(ShowThinking::fold, false, pieces).out, "Four.\n");
}

TEST(ChatDisplay, ShowsCallsBesideTheAnswer) {
    const Shown plain = shown(ShowThinking::apart, false, {{"Wait.", ""}},
                              {{"", "tide", "{\"place\": \"Brest\"}"}, {"", "moon", ""}, {"", "", "{}"}});
    EXPECT_EQ(plain.out, "Wait.\n");
    EXPECT_EQ(plain.err,
              "[calls tide {\"place\": \"Brest\"}]\n[calls moon {}]\n[calls a tool without a name {}]\n");
}

TEST(ChatDisplay, OutputCannotSteerATerminal) {
    const Shown terminal = shown(ShowThinking::apart, true, {{"", "a\033[2Jb"}, {"c\033]0;x\007\td\r", ""}},
                                 {{"", "t\033[1m", "\n{\"\u009b\"}"}});
    EXPECT_EQ(terminal.err, "\033[2ma\\x1b[2Jb\033[0m\n[calls t\\x1b[1m \\x0a{\"\\u009b\"}]\n");
    EXPECT_EQ(terminal.out, "c\\x1b]0;x\\x07\td\\x0d\n");
    EXPECT_EQ(shown(ShowThinking::apart, false, {{"c\033[2J", ""}}).out, "c\033[2J\n");
}

}  // namespace
}  // namespace waste::tools
