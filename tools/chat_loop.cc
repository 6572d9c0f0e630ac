#include "tools/chat_loop.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <string_view>
#include <utility>

#include "container/file.h"
#include "tools/command.h"
#include "tools/sampling_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kPrompt = "> ";
constexpr size_t kShownCharacters = 60;

/// The start of a message, in a line.
std::string start_of(const std::string& text) {
    size_t end = 0, characters = 0;
    while (end < text.size() && text[end] != '\n' && characters < kShownCharacters) {
        ++characters;
        while (++end < text.size() && (static_cast<unsigned char>(text[end]) & 0xc0) == 0x80) continue;
    }
    return printable(text.substr(0, end)) + (end < text.size() ? "..." : "");
}

double rate(int64_t tokens, double seconds) {
    return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
}

std::string plural(int64_t count, std::string_view what) {
    return fmt::format("{} {}{}", count, what, count == 1 ? "" : "s");
}

/// What people should know of going back.
void print_rewound(const engine::Rewound& rewound) {
    if (!rewound.warning.empty()) warn(rewound.warning);
    if (rewound.evaluated > 0) put_err(fmt::format("read {} again\n", plural(rewound.evaluated, "token")));
}

ChatDisplay::Sink sink_of(FILE* file, bool terminal) {
    return {[file](std::string_view text) {
                fwrite(text.data(), 1, text.size(), file);
                fflush(file);
            },
            terminal};
}

}  // namespace

Result<std::string> branch_path(const std::string& session_path, const std::string& name) {
    if (name.empty() || name == "." || name == ".." || name.find('/') != std::string::npos) {
        return fail(ErrorKind::invalid, "/branch", fmt::format("'{}' is not a name for a file", name));
    }
    const size_t slash = session_path.rfind('/');
    const size_t file = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = session_path.rfind('.');
    const std::string ending = dot != std::string::npos && dot > file ? session_path.substr(dot) : "";
    return session_path.substr(0, file) + name + (name.ends_with(ending) ? "" : ending);
}

int ChatLoop::run() {
    while (!ends_) {
        const Line entry = read_entry(lines_, kPrompt);
        if (entry.status == Line::Status::end) break;
        if (entry.status == Line::Status::interrupted) {
            // At a prompt Ctrl-C drops the line; without a terminal there is none to drop.
            if (asked_to_end() || !lines_.can_edit()) {
                stopped_ = true;
                break;
            }
            clear_interrupt();
            put_err("Ctrl-D leaves\n");
            continue;
        }
        if (entry.text.find_first_not_of(" \t\n") == std::string::npos) continue;
        lines_.remember(entry.text.find('\n') == std::string::npos ? entry.text : "");
        const auto input = parse_chat_line(entry.text);
        const auto ok = input ? obey(*input) : pass(input);
        if (!ok) {
            report(ok.error());
            failed_ = true;
        }
        stopped_ = asked_to_end();
        if (stopped_) break;
        if (interrupted()) clear_interrupt();
    }
    const auto saved = unsaved_ && !session_path_.empty() ? save(session_path_) : Result<void>();
    if (!saved) return report(saved.error());
    if (stopped_) return kInterrupted;
    return failed_ && !lines_.can_edit() ? kFailed : kOk;
}

Result<void> ChatLoop::obey(const ChatInput& input) {
    switch (input.verb) {
        case ChatVerb::say:
            return say(input.text);
        case ChatVerb::save:
            return switch_to(input.text);
        case ChatVerb::load:
            if (unsaved_ && session_path_.empty()) {
                return fail(ErrorKind::invalid, "/load", "this conversation is not saved; /save FILE first");
            }
            return load(input.text);
        case ChatVerb::undo:
            return undo();
        case ChatVerb::retry:
            return retry();
        case ChatVerb::edit:
            return edit(input.text);
        case ChatVerb::branch:
            return branch(input.text);
        case ChatVerb::stats:
            print_stats();
            return {};
        case ChatVerb::system:
            conversation_.add_system(input.text);
            put_err("it stands in front of your next message\n");
            return {};
        case ChatVerb::set:
            return set(input.text);
        case ChatVerb::help:
            put_err(chat_help());
            return {};
        case ChatVerb::quit:
            ends_ = true;
            return {};
    }
    return {};
}

/// Tells how far a long message is read; false where it is to stop.
Conversation::OnRead ChatLoop::reading(ProgressLine& progress) {
    return [&progress](int64_t done, int64_t total) {
        constexpr int64_t kWorthALine = 128;
        if (total >= kWorthALine) {
            progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0,
                            "reading the message");
        }
        return !interrupted();
    };
}

Result<void> ChatLoop::begin(const engine::ChatRequest& request) {
    ProgressLine progress("tokens");
    const auto read = conversation_.begin(request, reading(progress));
    progress.finish();
    if (!read) return pass(read);
    if (!*read) return fail(ErrorKind::interrupted, "messages", "stopped while they were read");
    unsaved_ = true;
    return conversation_.awaits_answer() ? answer() : save_turn();
}

Result<void> ChatLoop::say(const std::string& text) {
    ProgressLine progress("tokens");
    const auto read = conversation_.say(text, reading(progress));
    progress.finish();
    if (!read) return pass(read);
    if (!*read) {
        put_err("stopped; the message is not part of the conversation\n");
        return {};
    }
    unsaved_ = true;
    return answer();
}

Result<void> ChatLoop::answer() {
    ChatDisplay display(style_.thinking, sink_of(stdout, stdout_is_terminal()),
                        sink_of(stderr, stderr_is_terminal()));
    size_t calls = 0;
    const auto answer = conversation_.answer(
        [&](const engine::ReplyPiece& piece, const engine::ReplyReader& reader) {
            display.show(piece);
            for (; calls < reader.tool_calls().size(); ++calls) display.show_call(reader.tool_calls()[calls]);
        },
        [] { return interrupted() || ferror(stdout) != 0; });
    display.finish();
    if (ferror(stdout) != 0) ends_ = true;
    if (!answer) return pass(answer);
    if (!style_.quiet) print_cost(*answer);
    return save_turn();
}

Result<void> ChatLoop::undo() {
    const std::string text = conversation_.last_user_text();
    const auto rewound = conversation_.undo();
    if (!rewound) return pass(rewound);
    print_rewound(*rewound);
    put_err(fmt::format("took back: {}\n", start_of(text)));
    unsaved_ = true;
    return save_turn();
}

Result<void> ChatLoop::retry() {
    const auto rewound = conversation_.unanswer();
    if (!rewound) return pass(rewound);
    print_rewound(*rewound);
    put_err(fmt::format("seed {}\n", ++conversation_.settings.sampler.seed));
    unsaved_ = true;
    return answer();
}

Result<void> ChatLoop::edit(std::string text) {
    if (!conversation_.has_message())
        return fail(ErrorKind::invalid, "/edit", "there is no message to change");
    if (text.empty()) {
        if (!lines_.can_edit()) {
            return fail(ErrorKind::invalid, "/edit",
                        "needs the new text behind it where there is no terminal");
        }
        const Line entry = read_entry(lines_, kPrompt, entry_lines(conversation_.last_user_text()));
        if (entry.status != Line::Status::line) {
            if (!asked_to_end()) clear_interrupt();
            put_err("nothing changed\n");
            return {};
        }
        const auto input = parse_chat_line(entry.text);
        if (!input) return pass(input);
        if (input->verb != ChatVerb::say)
            return fail(ErrorKind::invalid, "/edit", "that is a command; nothing changed");
        text = input->text;
        lines_.remember(text.find('\n') == std::string::npos ? text : "");
    }
    const auto rewound = conversation_.undo();
    if (!rewound) return pass(rewound);
    print_rewound(*rewound);
    unsaved_ = true;
    return say(text);
}

Result<void> ChatLoop::save(const std::string& path) {
    const auto saved = session_.save(path);
    if (!saved) return pass(saved);
    unsaved_ = false;
    return {};
}

Result<void> ChatLoop::save_turn() {
    return session_path_.empty() ? Result<void>() : save(session_path_);
}

Result<void> ChatLoop::switch_to(const std::string& path) {
    if (path.empty() && session_path_.empty()) {
        return fail(ErrorKind::invalid, "/save", "needs a file's name: there is none yet");
    }
    const std::string& target = path.empty() ? session_path_ : path;
    if (const auto ok = save(target); !ok) return ok;
    session_path_ = std::string(target);
    put_err(fmt::format("saved in {}\n", printable(session_path_)));
    return {};
}

Result<void> ChatLoop::branch(const std::string& name) {
    const auto path = branch_path(session_path_, name);
    if (!path) return pass(path);
    if (container::is_file(*path))
        return fail(ErrorKind::invalid, "/branch", printable(*path) + " is there already");
    // The state that is left behind stays as it is.
    if (unsaved_ && !session_path_.empty()) {
        if (const auto ok = save(session_path_); !ok) return ok;
    }
    return switch_to(*path);
}

Result<void> ChatLoop::load(const std::string& path) {
    const auto saved = engine::SavedSession::open(path);
    if (!saved) return pass(saved);
    if (const auto ok = saved->verify(); !ok) return ok;
    if (unsaved_ && !session_path_.empty()) {
        if (const auto ok = save(session_path_); !ok) return ok;
    }
    auto ok = session_.load(*saved);
    if (ok) ok = conversation_.mend();
    if (!ok) {
        const auto again = load_again();
        return again ? ok : again;
    }
    session_path_ = path;
    unsaved_ = session_.position() != saved->position();
    conversation_.settings.sampler.seed = session_.sampler().seed;
    for (const std::string& text : conversation_.user_texts()) {
        lines_.remember(text.find('\n') == std::string::npos ? text : "");
    }
    greet();
    return {};
}

/// The conversation as it is in its file, after another could not be loaded.
Result<void> ChatLoop::load_again() {
    session_.clear();
    if (session_path_.empty()) return {};
    const auto before = engine::SavedSession::open(session_path_);
    return before ? session_.load(*before) : Result<void>(pass(before));
}

Result<void> ChatLoop::set(const std::string& words) {
    ConversationSettings& settings = conversation_.settings;
    const size_t blank = std::min(words.find(' '), words.size());
    const std::string name = words.substr(0, blank);
    const std::string value = words.substr(std::min(words.find_first_not_of(' ', blank), words.size()));
    if (name == "think") {
        if (value != "on" && value != "off") return fail(ErrorKind::invalid, "think", "is on or off");
        settings.thinking = value == "on";
    } else if (name == "n") {
        int64_t most = 0;
        const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), most);
        if (error != std::errc() || end != value.data() + value.size() || most < 0) {
            return fail(ErrorKind::invalid, "n", "is a number of tokens; 0: until the model stops");
        }
        settings.max_tokens = most;
    } else if (!name.empty()) {
        if (const auto ok = set_sampling(settings.sampler, name, value); !ok) return ok;
    }
    put_err(fmt::format("{}, n {}, think {}\n", sampling_text(settings.sampler), settings.max_tokens,
                        settings.thinking ? "on" : "off"));
    return {};
}

void ChatLoop::greet() const {
    if (session_.position() == 0) return;
    const auto texts = conversation_.user_texts();
    put_err(fmt::format("resumed {}: {}, {}; none read again\n", printable(session_path_),
                        plural(static_cast<int64_t>(texts.size()), "message"),
                        plural(session_.position(), "token")));
    if (!texts.empty()) put_err(fmt::format("the last: {}\n", start_of(texts.back())));
    if (conversation_.awaits_answer()) put_err("it has no answer yet; /retry answers it\n");
}

void ChatLoop::print_cost(const Answer& answer) const {
    const TurnCost& cost = conversation_.cost();
    std::string line =
        fmt::format("read {}, {:.1f} tok/s; generated {}, {:.1f} tok/s", plural(cost.read_tokens, "token"),
                    rate(cost.read_tokens, cost.read_seconds), plural(cost.generated_tokens, "token"),
                    rate(cost.generated_tokens, cost.generated_seconds));
    if (answer.reason != engine::StopReason::stop_token) {
        line += fmt::format("; ended by {}", engine::stop_reason_name(answer.reason));
        if (answer.in_reasoning) line += " in its reasoning";
        if (answer.in_tool_call) line += " in a tool call";
    }
    put_err(stderr_is_terminal() ? fmt::format("\033[2m{}\033[0m\n", line) : line + "\n");
}

void ChatLoop::print_stats() const {
    const TurnCost& cost = conversation_.cost();
    put_err(
        fmt::format("last turn      read {}, generated {}\n"
                    "conversation   {}, {}, room for {} more\n"
                    "checkpoints    {}\n"
                    "sampling       {}\n"
                    "session file   {}\n",
                    plural(cost.read_tokens, "token"), plural(cost.generated_tokens, "token"),
                    plural(static_cast<int64_t>(conversation_.user_texts().size()), "message"),
                    plural(session_.position(), "token"), session_.context_length() - session_.position(),
                    session_.checkpoints().size(), sampling_text(conversation_.settings.sampler),
                    session_path_.empty() ? "none; /save FILE makes one" : printable(session_path_)));
}

}  // namespace waste::tools
