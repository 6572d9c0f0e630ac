// waste run: a prompt in, text out.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "container/io_stats.h"
#include "engine/generate.h"
#include "engine/text/chat.h"
#include "engine/text/reply.h"
#include "engine/text/stop_ids.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::Tokenizer;

constexpr const char* kAbout =
    "Generates text from a prompt. The prompt is raw text to be continued, or with --chat a user's message "
    "in the\n"
    "model's own chat format. Text goes to stdout as it comes, statistics to stderr. Ctrl-C ends cleanly.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste run demo.waste \"Once upon a time\" -n 200\n"
    "  waste run demo.waste --chat \"Tell me a story about Lily.\"\n"
    "  waste run k3.waste --file question.txt --temp 0.7 --seed 1\n"
    "  waste run k3.waste --ids prompt.ids --json > answer.json\n"
    "  echo \"The capital of France is\" | waste run kl.waste --stop . -n 20";

constexpr int64_t kDefaultContext = 4096;

struct Arguments {
    ModelArguments model;
    PromptArguments prompt;
    bool chat = false;
    bool think = false;
    std::string system;
    int64_t max_tokens = 0;
    engine::SamplerOptions sampler;
    std::optional<uint64_t> seed;
    std::vector<std::string> stop;
    bool json = false;
    bool quiet = false;
    bool verbose = false;
};

/// What is fed to the model, and how its answer is read.
struct Prompt {
    std::vector<int32_t> ids;
    std::optional<engine::ChatFormat> chat;
};

Result<Prompt> make_prompt(const Arguments& arguments, const std::optional<Tokenizer>& tokenizer,
                           const std::string& place) {
    Prompt prompt;
    if (!arguments.prompt.ids.empty()) {
        auto ids = read_ids(arguments.prompt.ids);
        if (!ids) return pass(ids);
        prompt.ids = std::move(*ids);
    } else {
        if (!tokenizer) {
            return fail(ErrorKind::not_found, place,
                        "the model came without a tokenizer; give token ids with --ids");
        }
        const auto text = prompt_text(arguments.prompt);
        if (!text) return pass(text);
        std::vector<engine::Segment> segments{{*text, false}};
        if (arguments.chat) {
            const auto format = engine::detect_chat_format(*tokenizer);
            if (!format) return pass(format);
            std::vector<engine::ChatMessage> messages;
            if (!arguments.system.empty()) messages.push_back({"system", arguments.system, "", ""});
            messages.push_back({"user", *text, "", ""});
            engine::ChatOptions options;
            options.thinking = arguments.think;
            auto rendered = engine::render_chat(*format, messages, options);
            if (!rendered) return pass(rendered);
            segments = std::move(*rendered);
            prompt.chat = *format;
        }
        auto ids = tokenizer->encode_segments(segments);
        if (!ids) return pass(ids);
        prompt.ids = std::move(*ids);
    }
    if (prompt.ids.empty())
        return fail(ErrorKind::invalid, "prompt", "is empty; the model needs at least one token");
    return prompt;
}

/// Sends generated tokens where they belong: text to stdout, reasoning to stderr, all of it into the result.
class Output {
  public:
    Output(const Arguments& arguments, const std::optional<Tokenizer>& tokenizer, const Prompt& prompt)
        : arguments_(arguments), tokenizer_(tokenizer), stops_(arguments.stop) {
        if (tokenizer_ && prompt.chat) reply_.emplace(*tokenizer_, *prompt.chat, arguments.think);
    }

    engine::OnTokenAnswer push(int32_t id) {
        if (!tokenizer_) {
            show(fmt::format("{}{}", count_++ > 0 ? "," : "", id));
        } else if (reply_) {
            show_reply(reply_->push(id));
        } else {
            show(stops_.push(utf8_.push(tokenizer_->bytes(id))));
        }
        if (interrupted()) return engine::OnTokenAnswer::interrupt;
        return stops_.found() ? engine::OnTokenAnswer::stop_text : engine::OnTokenAnswer::keep_going;
    }

    void finish() {
        if (reply_) show_reply(reply_->finish());
        if (tokenizer_) show(stops_.push(utf8_.finish()));
        show(stops_.finish());
        if (arguments_.json) return;
        if (!text_.empty() && text_.back() != '\n') fmt::print("\n");
        std::fflush(stdout);
    }

    const std::string& text() const { return text_; }
    const std::string& reasoning() const { return reasoning_; }
    bool cut_in_reasoning() const { return reply_ && reply_->in_reasoning(); }

  private:
    void show_reply(const engine::ReplyPiece& piece) {
        reasoning_ += piece.reasoning;
        if (!arguments_.json && !arguments_.quiet)
            fmt::print(stderr, "{}", visible(piece.reasoning, stderr_is_terminal()));
        show(stops_.push(piece.response));
    }

    void show(const std::string& text) {
        text_ += text;
        if (arguments_.json || text.empty()) return;
        fmt::print("{}", visible(text, stdout_is_terminal()));
        std::fflush(stdout);
    }

    /// A model's output must not steer a terminal.
    static std::string visible(const std::string& text, bool terminal) {
        if (!terminal) return text;
        std::string out;
        for (const char c : text) {
            const auto byte = static_cast<unsigned char>(c);
            out += (byte >= 0x20 && byte != 0x7f) || c == '\n' || c == '\t' ? std::string(1, c)
                                                                            : printable({&c, 1});
        }
        return out;
    }

    const Arguments& arguments_;
    const std::optional<Tokenizer>& tokenizer_;
    std::optional<engine::ReplyReader> reply_;
    engine::Utf8Stream utf8_;
    engine::StopStrings stops_;
    std::string text_, reasoning_;
    int64_t count_ = 0;
};

struct Statistics {
    size_t prompt_tokens = 0, generated_tokens = 0;
    double prompt_seconds = 0, decode_seconds = 0;
    std::optional<uint64_t> drive_bytes;

    static double rate(size_t tokens, double seconds) {
        return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
    }
    double prompt_rate() const { return rate(prompt_tokens, prompt_seconds); }
    double decode_rate() const { return rate(generated_tokens, decode_seconds); }
};

void print_statistics(const Statistics& s, std::string_view reason, bool cut_in_reasoning) {
    std::string line =
        fmt::format("prompt {} tokens, {:.1f} tok/s; generated {} tokens, {:.1f} tok/s; ended by {}",
                    s.prompt_tokens, s.prompt_rate(), s.generated_tokens, s.decode_rate(), reason);
    if (s.drive_bytes) line += fmt::format("; {} read from the drive", bytes_text(*s.drive_bytes));
    if (cut_in_reasoning) line += "; the reply was cut in its reasoning";
    fmt::print(stderr, "\n{}\n", line);
}

void print_json(const Output& output, const engine::Generation& generation, const Statistics& s,
                uint64_t seed) {
    nlohmann::ordered_json json;
    json["text"] = output.text();
    if (!output.reasoning().empty()) json["reasoning"] = output.reasoning();
    json["ids"] = generation.ids;
    json["stop_reason"] = engine::stop_reason_name(generation.reason);
    json["seed"] = seed;
    json["prompt_tokens"] = s.prompt_tokens;
    json["prompt_tokens_per_second"] = s.prompt_rate();
    json["generated_tokens"] = s.generated_tokens;
    json["generated_tokens_per_second"] = s.decode_rate();
    if (s.drive_bytes) json["drive_bytes_read"] = *s.drive_bytes;
    fmt::print("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace));
}

/// The ids that end a turn, from generation_config.json and config.json.
Result<std::vector<int32_t>> find_stop_ids(const engine::Model& model,
                                           const std::optional<Tokenizer>& tokenizer) {
    const auto& config = model.config();
    if (!tokenizer) return config.eos_token_ids;
    const auto generation = model.container().carried_file("generation_config.json");
    if (!generation && generation.error().kind != ErrorKind::not_found) return pass(generation);
    const std::vector<int64_t> eos(config.eos_token_ids.begin(), config.eos_token_ids.end());
    return engine::stop_ids(*tokenizer, generation ? *generation : "", eos, config.vocab_size,
                            model.container().directory() + "/generation_config.json");
}

/// Feeds the prompt in pieces, so that Ctrl-C is heard between them.
Result<void> feed_prompt(engine::Session& session, std::span<const int32_t> ids, bool quiet) {
    constexpr size_t kPiece = 16;
    ProgressLine progress("tokens");
    for (size_t at = 0; at < ids.size(); at += kPiece) {
        if (interrupted()) return fail(ErrorKind::interrupted, "prompt", "stopped before it was read");
        const auto piece = ids.subspan(at, std::min(kPiece, ids.size() - at));
        if (const auto ok = session.feed(piece); !ok) return ok;
        // Short prompts need no progress line.
        if (!quiet && ids.size() >= 8 * kPiece)
            progress.update(at + piece.size(), ids.size(), 0, "reading the prompt");
    }
    return {};
}

int run(Arguments& arguments) {
    catch_interrupts();
    if (!arguments.seed) arguments.seed = std::random_device{}();
    arguments.sampler.seed = *arguments.seed;
    if (const auto ok = engine::validate(arguments.sampler); !ok) return report(ok.error());
    const auto model = engine::Model::open(arguments.model.model);
    if (!model) return report(model.error());
    const auto& config = model->config();
    const auto tokenizer = open_tokenizer(model->container(), config.vocab_size);
    if (!tokenizer) return report(tokenizer.error());
    const auto prompt = make_prompt(arguments, *tokenizer, arguments.model.model);
    if (!prompt) return report(prompt.error());
    const auto stop_ids = find_stop_ids(*model, *tokenizer);
    if (!stop_ids) return report(stop_ids.error());

    const auto prompt_tokens = static_cast<int64_t>(prompt->ids.size());
    const int64_t wanted = std::max(kDefaultContext, prompt_tokens + arguments.max_tokens);
    const auto options = session_options(arguments.model, std::min(wanted, config.max_context));
    if (!options) return report(options.error());
    auto session = engine::Session::create(*model, *options);
    if (!session) return report(session.error());
    if (arguments.verbose) {
        fmt::print(stderr, "{}: tier {}, {} threads, {}, context {}, seed {}\n", arguments.model.model,
                   kernels::tier_name(options->tier), options->threads, arguments.model.compute,
                   options->context_length, *arguments.seed);
    }

    using Clock = std::chrono::steady_clock;
    const auto drive_before = container::drive_bytes_read();
    const auto start = Clock::now();
    if (const auto ok = feed_prompt(*session, prompt->ids, arguments.quiet); !ok) return report(ok.error());
    const auto prompt_done = Clock::now();
    Output output(arguments, *tokenizer, *prompt);
    const engine::GenerateOptions generate_options{arguments.max_tokens, arguments.sampler, *stop_ids};
    const auto generation = engine::generate(*session, prompt->ids, generate_options,
                                             [&](int32_t id) { return output.push(id); });
    const auto end = Clock::now();
    output.finish();
    if (!generation) return report(generation.error());

    Statistics statistics{prompt->ids.size(), generation->ids.size(),
                          std::chrono::duration<double>(prompt_done - start).count(),
                          std::chrono::duration<double>(end - prompt_done).count(), std::nullopt};
    const auto drive_after = container::drive_bytes_read();
    if (drive_before && drive_after) statistics.drive_bytes = *drive_after - *drive_before;
    if (arguments.json) print_json(output, *generation, statistics, *arguments.seed);
    if (!arguments.quiet) {
        print_statistics(statistics, engine::stop_reason_name(generation->reason), output.cut_in_reasoning());
    }
    return generation->reason == engine::StopReason::interrupted ? kInterrupted : kOk;
}

void add_sampling_options(CLI::App& command, Arguments& arguments) {
    engine::SamplerOptions& sampler = arguments.sampler;
    sampler.top_p = 0.95f;  // as K3's own service has it
    const char* group = "Sampling";
    command.add_option("--temp", sampler.temperature, "Temperature; 0 always takes the likeliest token")
        ->capture_default_str()
        ->group(group);
    command.add_option("--top-k", sampler.top_k, "Sample among the k likeliest only; 0: all")
        ->capture_default_str()
        ->group(group);
    command.add_option("--top-p", sampler.top_p, "Sample among the likeliest that hold this share; 1: all")
        ->capture_default_str()
        ->group(group);
    command
        .add_option("--min-p", sampler.min_p, "Drop tokens under this share of the likeliest one; 0: none")
        ->capture_default_str()
        ->group(group);
    command
        .add_option("--repeat-penalty", sampler.repeat_penalty,
                    "Make tokens of the last 64 less likely; 1: off")
        ->capture_default_str()
        ->group(group);
    command.add_option("--seed", arguments.seed, "Same seed, same text (default: a random one)")
        ->group(group);
}

}  // namespace

void add_run_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("run", "Generate text from a prompt");
    set_help(*command, kAbout, kFooter);
    add_model_options(*command, arguments->model);
    add_prompt_options(*command, arguments->prompt);
    auto* chat = command->add_flag("--chat", arguments->chat, "The prompt is a user's message; answer it");
    chat->excludes(command->get_option("--ids"));
    command
        ->add_flag("--think", arguments->think, "With --chat: let the model reason first (shown on stderr)")
        ->needs(chat);
    command->add_option("--system", arguments->system, "With --chat: a system message")->needs(chat);
    command
        ->add_option("-n", arguments->max_tokens, "Most tokens to generate (default: until the model stops)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
    command->add_option("--stop", arguments->stop, "End before this text; may be given several times")
        ->take_all()
        ->expected(1)
        ->allow_extra_args(false);
    add_sampling_options(*command, *arguments);
    command->add_flag("--json", arguments->json, "Print one JSON object instead of streaming text");
    command->add_flag("-q,--quiet", arguments->quiet, "No statistics");
    command->add_flag("-v,--verbose", arguments->verbose, "Say what is used: tier, threads, context, seed");
    command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace waste::tools
