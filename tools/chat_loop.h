// The loop of `waste chat`: reads entries, does what they say, keeps the session file up to date.
#pragma once

#include <optional>
#include <string>

#include "tools/chat_conversation.h"
#include "tools/chat_display.h"
#include "tools/chat_input.h"
#include "tools/line_reader.h"

namespace waste::tools {

struct ChatStyle {
    ShowThinking thinking = ShowThinking::apart;
    bool quiet = false;  ///< no costs behind answers
};

/// Where a branch called `name` is kept: beside `session_path`, with its ending. An error where that is no file name.
Result<std::string> branch_path(const std::string& session_path, const std::string& name);

class ChatLoop {
  public:
    /// `session_path`: where the conversation is kept; empty: nowhere yet.
    ChatLoop(engine::Session& session, Conversation& conversation, LineReader& lines,
             std::string session_path, ChatStyle style)
        : session_(session),
          conversation_(conversation),
          lines_(lines),
          session_path_(std::move(session_path)),
          style_(style) {}

    /// Takes over the conversation of a session file.
    Result<void> load(const std::string& path);
    /// Begins with a conversation from elsewhere, and answers it if it ends with a question.
    Result<void> begin(const engine::ChatRequest& request);
    /// Until /quit or the end of the input; returns the exit code.
    int run();

  private:
    static Conversation::OnRead reading(class ProgressLine& progress);
    Result<void> obey(const ChatInput& input);
    Result<void> say(const std::string& text);
    Result<void> answer();
    Result<void> undo();
    Result<void> retry();
    Result<void> edit(std::string text);
    Result<void> save(const std::string& path);
    Result<void> save_turn();
    Result<void> load_again();
    Result<void> switch_to(const std::string& path);
    Result<void> branch(const std::string& name);
    Result<void> set(const std::string& words);
    void greet() const;
    void print_cost(const Answer& answer) const;
    void print_stats() const;

    engine::Session& session_;
    Conversation& conversation_;
    LineReader& lines_;
    std::string session_path_;
    ChatStyle style_;
    bool unsaved_ = false;
    bool failed_ = false;   ///< a message or a command did; the exit code where nobody sits before it
    bool stopped_ = false;  ///< by a signal
    bool ends_ = false;
};

}  // namespace waste::tools
