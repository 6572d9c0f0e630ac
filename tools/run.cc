// waste run: a prompt in, text out.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "container/io_stats.h"
#include "engine/generate.h"
#include "engine/memory_watch.h"
#include "engine/model_text.h"
#include "engine/routing_trace.h"
#include "engine/text/chat.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/profile_table.h"
#include "tools/reply_output.h"
#include "tools/stream_report.h"
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

// Where the user names no sizes: the least context, and the room for a reply behind a long prompt.
constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kDefaultReplyTokens = 4096;

struct Arguments {
    ModelArguments model;
    PromptArguments prompt;
    bool chat = false;
    bool think = false;
    std::string effort;
    std::string system;
    int64_t max_tokens = 0;
    engine::SamplerOptions sampler;
    std::optional<uint64_t> seed;
    std::vector<std::string> stop;
    bool json = false;
    bool quiet = false;
    bool verbose = false;
    bool profile = false;
    bool stats = false;
    bool layer_stats = false;
    std::string routing_trace;  ///< empty: none
    bool trace_scores = false;
};

/// What is fed to the model, and how its answer is read.
struct Prompt {
    std::vector<int32_t> ids;
    std::optional<engine::ChatFormat> chat;
};

Result<Prompt> make_prompt(const Arguments& arguments, const Tokenizer* tokenizer, const std::string& place) {
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
            options.effort = arguments.effort;
            auto rendered = engine::render_chat(*format, messages, options);
            if (!rendered) return pass(rendered);
            segments = std::move(*rendered);
            prompt.chat = *format;
        }
        auto ids = tokenizer->encode_segments(segments);
        if (!ids) return fail(ids.error().kind, prompt_place(arguments.prompt), ids.error().text());
        prompt.ids = std::move(*ids);
    }
    if (prompt.ids.empty())
        return fail(ErrorKind::invalid, "prompt", "is empty; the model needs at least one token");
    return prompt;
}

struct Statistics {
    size_t prompt_tokens = 0, generated_tokens = 0;
    double prompt_seconds = 0, decode_seconds = 0;
    std::optional<uint64_t> drive_bytes;
    engine::StreamCounters prompt_stream, decode_stream;

    static double rate(size_t tokens, double seconds) {
        return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
    }
    double prompt_rate() const { return rate(prompt_tokens, prompt_seconds); }
    double decode_rate() const { return rate(generated_tokens, decode_seconds); }
};

void print_statistics(const Statistics& s, engine::StopReason reason, bool cut_in_reasoning) {
    std::string line = fmt::format(
        "prompt {} tokens, {:.1f} tok/s; generated {} tokens, {:.1f} tok/s; ended by {}", s.prompt_tokens,
        s.prompt_rate(), s.generated_tokens, s.decode_rate(), engine::stop_reason_name(reason));
    if (s.drive_bytes) line += fmt::format("; {} read from the drive", bytes_text(*s.drive_bytes));
    if (cut_in_reasoning) line += "; the reply was cut in its reasoning";
    put_err(fmt::format("\n{}\n", line));
}

void print_stream(const engine::Model& model, const Statistics& s, bool by_layer) {
    const auto prompt_tokens = static_cast<int64_t>(s.prompt_tokens);
    const auto generated_tokens = static_cast<int64_t>(s.generated_tokens);
    const std::string reading = stream_text(model, s.prompt_stream, prompt_tokens, s.prompt_seconds);
    if (!reading.empty()) put_err("prompt:\n" + reading);
    const std::string generating = stream_text(model, s.decode_stream, generated_tokens, s.decode_seconds);
    if (!generating.empty()) put_err("generation:\n" + generating);
    if (by_layer) put_err(layers_text(model, prompt_tokens + generated_tokens));
}

void print_json(const engine::Model& model, const ReplyOutput& output, const engine::Generation& generation,
                const Statistics& s, uint64_t seed) {
    nlohmann::ordered_json json;
    json["text"] = output.text();
    if (!output.reasoning().empty()) json["reasoning"] = output.reasoning();
    json["ids"] = generation.ids;
    json["stop_reason"] = engine::stop_reason_name(generation.reason);
    if (generation.error) json["error"] = generation.error->text();
    json["seed"] = seed;
    json["prompt_tokens"] = s.prompt_tokens;
    json["prompt_tokens_per_second"] = s.prompt_rate();
    json["generated_tokens"] = s.generated_tokens;
    json["generated_tokens_per_second"] = s.decode_rate();
    if (s.drive_bytes) json["drive_bytes_read"] = *s.drive_bytes;
    if (model.experts().streams() || model.trunk().streams()) {
        json["prompt_stream"] =
            stream_json(model, s.prompt_stream, static_cast<int64_t>(s.prompt_tokens), s.prompt_seconds);
        json["generation_stream"] =
            stream_json(model, s.decode_stream, static_cast<int64_t>(s.generated_tokens), s.decode_seconds);
    }
    put_out(fmt::format("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)));
}

/// Feeds the prompt; false where Ctrl-C was heard, which is after the block being computed.
Result<bool> feed_prompt(engine::Session& session, std::span<const int32_t> ids, bool quiet) {
    constexpr size_t kWorthALine = 128;
    ProgressLine progress("tokens");
    if (interrupted()) return false;
    const auto ok = session.feed(ids, nullptr, [&] {
        if (!quiet && ids.size() >= kWorthALine) {
            progress.update(static_cast<uint64_t>(session.position()), ids.size(), 0, "reading the prompt");
        }
        return !interrupted();
    });
    if (!ok) return pass(ok);
    return session.position() == static_cast<int64_t>(ids.size()) && !interrupted();
}

void print_profile(const char* what, const engine::Profile& profile, size_t tokens) {
    put_err(fmt::format("{}:\n{}", what, profile_table(profile, static_cast<int64_t>(tokens))));
}

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}

/// Reads the prompt, generates, prints. Whatever was generated is printed, however it ended.
int answer(const Arguments& arguments, const engine::Model& model, engine::Session& session,
           const Prompt& prompt, const engine::GenerateOptions& options, ReplyOutput& output) {
    using Clock = std::chrono::steady_clock;
    const auto drive_before = container::drive_bytes_read();
    const engine::StreamCounters at_start = model.counters();
    const auto start = Clock::now();
    engine::Profile reading, generating;
    if (arguments.profile) session.set_profile(&reading);
    const auto fed = feed_prompt(session, prompt.ids, arguments.quiet);
    if (!fed) return report(fed.error());
    const auto prompt_done = Clock::now();
    const engine::StreamCounters at_prompt_end = model.counters();
    if (arguments.profile) session.set_profile(&generating);
    engine::Generation generation{{}, engine::StopReason::interrupted, std::nullopt};
    if (*fed) {
        generation =
            engine::generate(session, options, [&](int32_t id) { return output.push(id); });
        output.finish();
    }
    session.set_profile(nullptr);
    Statistics statistics{static_cast<size_t>(session.position()),
                          generation.ids.size(),
                          seconds_between(start, prompt_done),
                          seconds_between(prompt_done, Clock::now()),
                          std::nullopt,
                          at_prompt_end - at_start,
                          model.counters() - at_prompt_end};
    if (*fed) statistics.prompt_tokens = prompt.ids.size();
    const auto drive_after = container::drive_bytes_read();
    if (drive_before && drive_after) statistics.drive_bytes = *drive_after - *drive_before;
    if (arguments.json) print_json(model, output, generation, statistics, session.sampler().seed);
    if (!arguments.quiet)
        print_statistics(statistics, generation.reason,
                         generation.reason != engine::StopReason::stop_token && output.cut_in_reasoning());
    if (arguments.stats || arguments.layer_stats) print_stream(model, statistics, arguments.layer_stats);
    if (arguments.profile) {
        print_profile("prompt", reading, statistics.prompt_tokens);
        print_profile("generation", generating, statistics.generated_tokens);
    }
    if (generation.error) return report(*generation.error);
    return generation.reason == engine::StopReason::interrupted ? kInterrupted : kOk;
}

/// The library's name of a sampling option in the command line's spelling.
Error as_option(Error error) {
    if (error.place == "temperature") error.place = "temp";
    std::replace(error.place.begin(), error.place.end(), '_', '-');
    error.place = "--" + error.place;
    return error;
}

/// Room for the prompt and what is to come, within what the model can.
int64_t context_for(int64_t prompt_tokens, int64_t max_tokens, int64_t model_context) {
    const int64_t wanted = prompt_tokens + (max_tokens > 0 ? max_tokens : kDefaultReplyTokens);
    return std::min(std::max(wanted, kDefaultContext), model_context);
}

int run(Arguments& arguments) {
    if (!arguments.seed) arguments.seed = std::random_device{}();
    arguments.sampler.seed = *arguments.seed;
    if (const auto ok = engine::validate(arguments.sampler); !ok) return report(as_option(ok.error()));
    auto model = engine::Model::open(arguments.model.model);
    if (!model) return report(model.error());
    const auto& config = model->config();
    const auto tokenizer = engine::open_tokenizer(model->container(), config.vocab_size);
    if (!tokenizer) return report(tokenizer.error());
    const Tokenizer* text = *tokenizer ? &**tokenizer : nullptr;
    if (!text && !arguments.stop.empty()) {
        return report({ErrorKind::invalid, "--stop", "needs a tokenizer, and the model came without one"});
    }
    const auto prompt = make_prompt(arguments, text, arguments.model.model);
    if (!prompt) return report(prompt.error());
    const auto stop_ids = engine::find_stop_ids(*model, text);
    if (!stop_ids) return report(stop_ids.error());

    const auto prompt_tokens = static_cast<int64_t>(prompt->ids.size());
    auto options = session_options(arguments.model,
                                   context_for(prompt_tokens, arguments.max_tokens, config.max_context));
    if (!options) return report(options.error());
    if (prompt_tokens > options->context_length) {
        return report(
            {ErrorKind::capacity, "prompt",
             fmt::format("has {} tokens, the context is {}; choose a larger --ctx (the model takes {})",
                         prompt_tokens, options->context_length, config.max_context)});
    }
    const auto held = hold_model(*model, arguments.model.memory, *options);
    if (!held) return report(held.error());
    const LearnedUses learned(*model, arguments.model.memory);
    auto session = engine::Session::create(*model, *options);
    if (!session) return report(session.error());
    session->set_sampler(arguments.sampler);
    const engine::MemoryWatch watch(model->experts());
    catch_interrupts();
    if (arguments.verbose) {
        put_err(fmt::format("{}: tier {}, {} threads, {}, context {}, seed {}\n",
                            printable(arguments.model.model), kernels::tier_name(options->tier),
                            options->threads, arguments.model.compute, options->context_length,
                            *arguments.seed));
        put_err(holding_text(*model, held->plan));
        for (const std::string& warning : text ? text->warnings() : std::vector<std::string>()) warn(warning);
    }
    const ReplyOutput::Style style{arguments.json, arguments.quiet, arguments.think};
    ReplyOutput output(text, prompt->chat, arguments.stop, style);
    const engine::GenerateOptions generation{arguments.max_tokens, *stop_ids};
    if (arguments.routing_trace.empty())
        return answer(arguments, *model, *session, *prompt, generation, output);
    auto trace = engine::RoutingTrace::create(arguments.routing_trace, config, arguments.trace_scores);
    if (!trace) return report(trace.error());
    session->set_trace(&*trace);
    const int code = answer(arguments, *model, *session, *prompt, generation, output);
    const auto written = trace->finish();
    return written ? code : report(written.error());
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
    add_learn_option(*command, arguments->model.memory);
    add_prompt_options(*command, arguments->prompt);
    auto* chat = command->add_flag("--chat", arguments->chat, "The prompt is a user's message; answer it");
    chat->excludes(command->get_option("--ids"));
    command
        ->add_flag("--think", arguments->think, "With --chat: let the model reason first (shown on stderr)")
        ->needs(chat);
    command->add_option("--effort", arguments->effort, "With --think: how much; tells the model so")
        ->check(CLI::IsMember({"low", "high", "max"}))
        ->needs("--think");
    command->add_option("--system", arguments->system, "With --chat: a system message")->needs(chat);
    command
        ->add_option("-n", arguments->max_tokens, "Most tokens to generate (default: until the model stops)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
    command->add_option("--stop", arguments->stop, "End before this text; may be given several times")
        ->check([](const std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); })
        ->take_all()
        ->expected(1)
        ->allow_extra_args(false);
    add_sampling_options(*command, *arguments);
    command->add_flag("--json", arguments->json, "Print one JSON object instead of streaming text");
    command->add_flag("-q,--quiet", arguments->quiet, "No statistics");
    command->add_flag("-v,--verbose", arguments->verbose, "Say what is used: tier, threads, context, seed");
    command->add_flag("--profile", arguments->profile, "Say on stderr where the time went");
    command->add_flag("--stats", arguments->stats,
                      "Say on stderr what the drive did, where experts do not fit");
    command->add_flag("--layer-stats", arguments->layer_stats, "The same, and for each layer");
    auto* trace = command->add_option("--trace-routing", arguments->routing_trace,
                                      "Write the experts chosen to this file, a line of JSON a token");
    command
        ->add_flag("--trace-scores", arguments->trace_scores, "With --trace-routing: all experts' scores too")
        ->needs(trace);
    command->callback([arguments, &action] { action = [arguments] { return run(*arguments); }; });
}

}  // namespace waste::tools
