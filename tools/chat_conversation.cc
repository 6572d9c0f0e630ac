#include "tools/chat_conversation.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <string_view>
#include <utility>

namespace waste::tools {
namespace {

using engine::ReplyReader;
using engine::TurnRole;

/// Kept free behind an answer for the markup that ends it.
constexpr int64_t kClosingTokens = 64;

class Stopwatch {
  public:
    double seconds() const {
        return std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
    }

  private:
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// The value in a note on thinking effort.
std::string effort_of(std::string_view note) {
    constexpr std::string_view kName = "thinking_effort=";
    const size_t begin = note.rfind(kName);
    if (begin == std::string_view::npos) return {};
    const std::string_view value = note.substr(begin + kName.size());
    return std::string(value.substr(0, value.find('`')));
}

}  // namespace

const engine::Turn* Conversation::last_user_turn() const {
    const auto& turns = session_.history().turns;
    const auto found = std::find_if(turns.rbegin(), turns.rend(),
                                    [](const auto& turn) { return turn.role == TurnRole::user; });
    return found == turns.rend() ? nullptr : &*found;
}

bool Conversation::awaits_answer() const {
    const auto& turns = session_.history().turns;
    return !turns.empty() && turns.back().role == TurnRole::user;
}

std::vector<engine::TranscriptMessage> Conversation::messages_from(int64_t position) const {
    return engine::read_transcript(tokenizer_, format_,
                                   session_.tokens().subspan(static_cast<size_t>(position)));
}

std::vector<std::string> Conversation::user_texts() const {
    std::vector<std::string> texts;
    for (auto& read : messages_from(0)) {
        if (read.message.role == "user") texts.push_back(std::move(read.message.content));
    }
    return texts;
}

std::string Conversation::last_user_text() const {
    const auto texts = user_texts();
    return texts.empty() ? "" : texts.back();
}

Result<std::vector<int32_t>> Conversation::prompt_ids(const std::string& text) const {
    std::vector<engine::ChatMessage> messages;
    for (const std::string& system : system_) messages.push_back({"system", system});
    messages.push_back({"user", text});
    engine::ChatOptions options;
    options.thinking = settings.thinking;
    if (session_.position() == 0) options.effort = settings.effort;
    const auto segments = engine::render_chat(format_, messages, options);
    if (!segments) return pass(segments);
    return tokenizer_.encode_segments(*segments);
}

Result<bool> Conversation::read(TurnRole role, std::span<const int32_t> ids, const OnRead& on_read) {
    const Stopwatch watch;
    const int64_t begin = session_.position();
    const auto total = static_cast<int64_t>(ids.size());
    const int64_t room = session_.context_length() - begin;
    if (total + kClosingTokens >= room) {
        return fail(
            ErrorKind::capacity, "context",
            fmt::format("the message has {} tokens, and {} of {} are left; /undo makes room, and so does a "
                        "larger --ctx at the start",
                        total, room, session_.context_length()));
    }
    session_.begin_turn(role);
    const auto ok = session_.feed(ids, nullptr, [&] { return on_read(session_.position() - begin, total); });
    if (!ok || session_.position() < begin + total) {
        if (const auto back = session_.rewind(begin); !back) return pass(back);
        return ok ? Result<bool>(false) : pass(ok);
    }
    cost_ = {total, 0, watch.seconds(), 0};
    return true;
}

Result<bool> Conversation::begin(const engine::ChatRequest& request, const OnRead& on_read) {
    const auto& messages = request.messages;
    const auto is_user = [](const engine::ChatMessage& message) { return message.role == "user"; };
    const bool asks = !messages.empty() && messages.back().role != "assistant";
    // What can be taken back begins with the last message of the user; all before it stays.
    const auto last_user = std::find_if(messages.rbegin(), messages.rend(), is_user);
    const size_t split = !asks ? messages.size()
                         : last_user == messages.rend()
                             ? 0
                             : messages.size() - 1 - static_cast<size_t>(last_user - messages.rbegin());
    settings.thinking = request.options.thinking;
    const auto read_piece = [&](std::span<const engine::ChatMessage> piece, TurnRole role,
                                const engine::ChatOptions& options) -> Result<bool> {
        const auto segments = engine::render_chat(format_, piece, options);
        if (!segments) return pass(segments);
        const auto ids = tokenizer_.encode_segments(*segments);
        return ids ? read(role, *ids, on_read) : pass(ids);
    };
    engine::ChatOptions front = request.options, back = request.options;
    if (split > 0) {
        front.generation_prompt = false;
        front.tool_choice = engine::ToolChoice::automatic;
        front.response_format = engine::ResponseFormat::text;
        back.tools.clear();
        back.effort.clear();
        const auto done = read_piece(std::span(messages).first(split), TurnRole::system, front);
        if (!done || !*done || !asks) return done;
    }
    const int64_t front_tokens = session_.position();
    const auto done = read_piece(std::span(messages).subspan(split), TurnRole::user, back);
    if (!done || !*done) {
        session_.clear();
        return done;
    }
    cost_.read_tokens += front_tokens;
    return done;
}

Result<bool> Conversation::say(const std::string& text, const OnRead& on_read) {
    const auto ids = prompt_ids(text);
    if (!ids) return pass(ids);
    if (awaits_answer()) {
        const ReplyReader nothing = answer_reader();
        session_.begin_turn(TurnRole::assistant);
        if (const auto ok = complete({}, nothing); !ok) return pass(ok);
    }
    auto done = read(TurnRole::user, *ids, on_read);
    if (done && *done) system_.clear();
    return done;
}

int64_t Conversation::answer_begin() const {
    const auto& turns = session_.history().turns;
    return turns.empty() || turns.back().role == TurnRole::user ? session_.position() : turns.back().begin;
}

ReplyReader Conversation::answer_reader() const {
    const engine::Turn* user = last_user_turn();
    const auto begin = static_cast<size_t>(answer_begin());
    const auto prompt_begin = static_cast<size_t>(user ? user->begin : 0);
    const auto tokens = session_.tokens();
    ReplyReader reader(
        tokenizer_, format_,
        engine::reply_start(tokenizer_, format_, tokens.subspan(prompt_begin, begin - prompt_begin)));
    for (const int32_t id : tokens.subspan(begin)) reader.push(id);
    return reader;
}

/// Feeds the tokens of `chosen` that were not fed, and what ends the message.
Result<void> Conversation::complete(std::span<const int32_t> chosen, const ReplyReader& reader) {
    const auto fed = static_cast<size_t>(session_.position() - answer_begin());
    const auto closing = tokenizer_.encode_segments(reader.closing());
    if (!closing) return pass(closing);
    std::vector<int32_t> rest(chosen.begin() + static_cast<std::ptrdiff_t>(std::min(fed, chosen.size())),
                              chosen.end());
    rest.insert(rest.end(), closing->begin(), closing->end());
    const auto room = static_cast<size_t>(session_.context_length() - session_.position());
    // Only elements nested without sense take more; the message's end is what matters.
    if (rest.size() > room)
        rest.erase(rest.begin(), rest.end() - static_cast<std::ptrdiff_t>(std::min<size_t>(room, 1)));
    return rest.empty() ? Result<void>() : session_.feed(rest);
}

Result<Answer> Conversation::answer(const OnPiece& on_piece, const IsInterrupted& is_interrupted) {
    ReplyReader reader = answer_reader();
    const int64_t begin = session_.position();
    const int64_t room = session_.context_length() - begin - kClosingTokens;
    if (room < 1) {
        return fail(ErrorKind::capacity, "context", "has no room for an answer; /undo makes room");
    }
    const Stopwatch watch;
    session_.set_sampler(settings.sampler);
    session_.begin_turn(TurnRole::assistant);
    const int64_t most = settings.max_tokens > 0 ? std::min(settings.max_tokens, room) : room;
    const auto generation = engine::generate(session_, {most, stop_ids_}, [&](int32_t id) {
        on_piece(reader.push(id), reader);
        if (is_interrupted()) return engine::OnTokenAnswer::interrupt;
        return reader.ended() ? engine::OnTokenAnswer::stop_text : engine::OnTokenAnswer::keep_going;
    });
    Answer answer{generation.reason, reader.in_reasoning(), reader.in_tool_call()};
    auto ok =
        generation.error ? Result<void>(tl::unexpected(*generation.error)) : complete(generation.ids, reader);
    on_piece(reader.finish(), reader);
    if (!ok) {
        // Also mends a session that an error broke.
        if (const auto back = session_.rewind(begin); !back) return pass(back);
        return pass(ok);
    }
    if (reader.ended()) answer.reason = engine::StopReason::stop_token;
    if (answer.reason == engine::StopReason::length && most == room)
        answer.reason = engine::StopReason::context;
    cost_.generated_tokens = static_cast<int64_t>(generation.ids.size());
    cost_.generated_seconds = watch.seconds();
    return answer;
}

Result<engine::Rewound> Conversation::undo() {
    const engine::Turn* user = last_user_turn();
    if (!user) return fail(ErrorKind::invalid, "/undo", "there is no message to take back");
    // What stood in front of the message belongs to the one that comes instead.
    std::vector<std::string> system;
    std::string effort;
    for (auto& read : messages_from(user->begin)) {
        if (read.type == "thinking-effort") effort = effort_of(read.message.content);
        if (read.message.role == "system" && read.type.empty())
            system.push_back(std::move(read.message.content));
    }
    auto rewound = session_.rewind(user->begin);
    if (!rewound) return rewound;
    system_.insert(system_.begin(), system.begin(), system.end());
    if (!effort.empty()) settings.effort = effort;
    cost_ = {};
    return rewound;
}

Result<engine::Rewound> Conversation::unanswer() {
    if (!has_message()) return fail(ErrorKind::invalid, "/retry", "there is no message to answer");
    return session_.rewind(answer_begin());
}

Result<void> Conversation::mend() {
    const auto messages = messages_from(0);
    if (session_.position() == 0) return {};
    if (messages.empty())
        return fail(ErrorKind::invalid, "session", "holds text, but no conversation in chat markup");
    if (messages.back().complete) return {};
    if (messages.back().message.role == "assistant") {
        return awaits_answer() ? Result<void>() : complete({}, answer_reader());
    }
    const engine::Turn* user = last_user_turn();
    if (!user)
        return fail(ErrorKind::invalid, "session", "ends inside a message, and does not say where it began");
    const auto back = session_.rewind(user->begin);
    return back ? Result<void>() : pass(back);
}

}  // namespace waste::tools
