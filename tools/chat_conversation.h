// A conversation on a session: messages become tokens behind what is there already, answers are generated, turns are
// taken back. Its text is in the session's tokens and nowhere else.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/session.h"
#include "engine/text/chat_json.h"
#include "engine/text/reply.h"
#include "engine/text/tokenizer.h"
#include "engine/text/transcript.h"

namespace waste::tools {

struct ConversationSettings {
    engine::SamplerOptions sampler;
    int64_t max_tokens = 0;  ///< of an answer; 0: until the model stops
    bool thinking = true;
    std::string effort{};  ///< stated in front of the first message
};

/// What the last turn cost.
struct TurnCost {
    int64_t read_tokens = 0, generated_tokens = 0;
    double read_seconds = 0, generated_seconds = 0;
};

struct Answer {
    engine::StopReason reason;
    bool in_reasoning = false, in_tool_call = false;  ///< cut there
};

class Conversation {
  public:
    using OnPiece = std::function<void(const engine::ReplyPiece&, const engine::ReplyReader&)>;
    /// Called between blocks of a prompt; false stops the reading.
    using OnRead = std::function<bool(int64_t done, int64_t total)>;
    using IsInterrupted = std::function<bool()>;

    /// All must outlive it.
    Conversation(engine::Session& session, const engine::Tokenizer& tokenizer, engine::ChatFormat format,
                 std::vector<int32_t> stop_ids)
        : session_(session), tokenizer_(tokenizer), format_(format), stop_ids_(std::move(stop_ids)) {}

    ConversationSettings settings;

    /// To stand in front of the next message.
    void add_system(std::string text) { system_.push_back(std::move(text)); }
    bool has_new_system() const { return !system_.empty(); }

    /// Begins an empty conversation with messages that were said elsewhere, tools and choices included. If the last is no
    /// assistant's it awaits an answer. Results as say()'s.
    Result<bool> begin(const engine::ChatRequest& request, const OnRead& on_read);
    /// Reads a message up to where the answer begins: only its own tokens. False where it was stopped: then the
    /// conversation is as before. An error leaves it as before too.
    Result<bool> say(const std::string& text, const OnRead& on_read);
    /// Answers the message read last. However it ends, the conversation is whole afterwards; after an error the answer
    /// is not part of it.
    Result<Answer> answer(const OnPiece& on_piece, const IsInterrupted& is_interrupted);

    /// Takes the last message and what followed it back.
    Result<engine::Rewound> undo();
    /// Takes only the answer back.
    Result<engine::Rewound> unanswer();
    /// Makes whole what a session was left in the middle of: an answer is ended, a message that was not read to its end
    /// is taken back.
    Result<void> mend();

    bool has_message() const { return last_user_turn() != nullptr; }
    /// The message that was read last has no answer.
    bool awaits_answer() const;
    /// What the user said, first to last.
    std::vector<std::string> user_texts() const;
    std::string last_user_text() const;
    const TurnCost& cost() const { return cost_; }
    const engine::Session& session() const { return session_; }

  private:
    const engine::Turn* last_user_turn() const;
    std::vector<engine::TranscriptMessage> messages_from(int64_t position) const;
    Result<std::vector<int32_t>> prompt_ids(const std::string& text) const;
    Result<bool> read(engine::TurnRole role, std::span<const int32_t> ids, const OnRead& on_read);
    /// Where the answer to the last message begins, and a reader that has read what there is of it.
    int64_t answer_begin() const;
    engine::ReplyReader answer_reader() const;
    Result<void> complete(std::span<const int32_t> chosen, const engine::ReplyReader& reader);

    engine::Session& session_;
    const engine::Tokenizer& tokenizer_;
    engine::ChatFormat format_;
    std::vector<int32_t> stop_ids_;
    std::vector<std::string> system_;
    TurnCost cost_;
};

}  // namespace waste::tools
