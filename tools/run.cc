// waste run: a prompt in, text out.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "container/io_stats.h"
#include "engine/generate.h"
#include "engine/memory_watch.h"
#include "engine/model_text.h"
#include "engine/routing_trace.h"
#include "engine/text/chat.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/prompt_progress.h"
#include "tools/reply_output.h"
#include "tools/run_report.h"
#include "tools/sampling_options.h"
#include "tools/session_options.h"
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
    "  waste run k3.waste --file book.txt --session book.session -n 200\n"
    "  waste run k3.waste --session book.session -n 200\n"
    "  echo \"The capital of France is\" | waste run kl.waste --stop . -n 20";

// Where the user names no sizes: the least context, and the room for a reply behind a long prompt.
constexpr int64_t kDefaultContext = 4096;
constexpr int64_t kDefaultReplyTokens = 4096;

struct Arguments {
    ModelArguments model;
    PromptArguments prompt;
    SessionArguments session;
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
            if (!arguments.system.empty()) messages.push_back({"system", arguments.system});
            messages.push_back({"user", *text});
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

/// Where a run begins: behind what the session of a file has in common with the prompt.
struct Start {
    std::optional<engine::SavedSession> saved;
    int64_t position = 0;         ///< what is kept of it
    std::vector<int32_t> unread;  ///< of the prompt
};

bool has_prompt(const PromptArguments& prompt) {
    return prompt.text || !prompt.file.empty() || !prompt.ids.empty();
}

Result<Start> find_start(const Arguments& arguments, const Prompt& prompt,
                         std::optional<engine::SavedSession> saved) {
    Start start{std::move(saved), 0, prompt.ids};
    if (!start.saved) return start;
    const auto& known = start.saved->history().tokens;
    if (prompt.ids.empty()) {
        start.position = start.saved->position();
        return start;
    }
    const auto meet = std::mismatch(known.begin(), known.end(), prompt.ids.begin(), prompt.ids.end());
    start.position = meet.first - known.begin();
    if (meet.first != known.end() && !arguments.session.rewind) {
        return fail(
            ErrorKind::invalid, arguments.session.file,
            fmt::format("the prompt does not go on from its {} tokens, of which it shares {}; --rewind "
                        "drops the others, without a prompt the session goes on by itself",
                        known.size(), start.position));
    }
    start.unread.assign(meet.second, prompt.ids.end());
    return start;
}

/// Reads what is unread of the prompt. Returns the tokens that were known; fewer are read where Ctrl-C was heard,
/// which is after the block being computed.
Result<int64_t> read_prompt(engine::Session& session, std::span<const int32_t> ids,
                            const Arguments& arguments, SessionSaver& saver) {
    PromptProgress progress(session, static_cast<int64_t>(ids.size()), arguments.quiet);
    const int64_t known = session.position();
    const auto on_block = [&] {
        progress.after_block();
        saver.after_tokens();
        return !interrupted();
    };
    if (interrupted() || ids.empty()) return known;
    session.begin_turn(engine::TurnRole::user);
    if (known > 0 || arguments.session.prompt_cache.empty()) {
        const auto ok = session.feed(ids, nullptr, on_block);
        if (!ok) return pass(ok);
        return known;
    }
    auto cache =
        engine::PromptCache::open(arguments.session.prompt_cache, arguments.session.prompt_cache_bytes);
    if (!cache) return pass(cache);
    auto reused = cache->read(session, ids, on_block);
    if (!cache->warning().empty()) warn(cache->warning());
    return reused;
}

double seconds_between(std::chrono::steady_clock::time_point begin,
                       std::chrono::steady_clock::time_point end) {
    return std::chrono::duration<double>(end - begin).count();
}

/// Reads the prompt, generates, prints, saves. Whatever was generated is printed, however it ended.
int answer(const Arguments& arguments, const engine::Model& model, engine::Session& session,
           std::span<const int32_t> unread, const engine::GenerateOptions& options, ReplyOutput& output) {
    using Clock = std::chrono::steady_clock;
    const auto drive_before = container::drive_bytes_read();
    const engine::StreamCounters at_start = model.counters();
    const auto start = Clock::now();
    engine::Profile reading, generating;
    if (arguments.profile) session.set_profile(&reading);
    SessionSaver saver(session, arguments.session);
    const int64_t end = session.position() + static_cast<int64_t>(unread.size());
    const auto known = read_prompt(session, unread, arguments, saver);
    if (!known) {
        saver.at_end(arguments.quiet);
        return report(known.error());
    }
    const bool whole = session.position() == end && !interrupted();
    const int64_t read = session.position() - *known;
    const auto prompt_done = Clock::now();
    const engine::StreamCounters at_prompt_end = model.counters();
    if (arguments.profile) session.set_profile(&generating);
    engine::Generation generation{{}, engine::StopReason::interrupted, std::nullopt};
    if (whole) {
        if (!unread.empty()) session.begin_turn(engine::TurnRole::assistant);
        generation = engine::generate(session, options, [&](int32_t id) {
            saver.after_tokens();
            return output.push(id);
        });
        output.finish();
    }
    session.set_profile(nullptr);
    RunStatistics statistics{static_cast<size_t>(read),
                             static_cast<size_t>(*known),
                             generation.ids.size(),
                             seconds_between(start, prompt_done),
                             seconds_between(prompt_done, Clock::now()),
                             std::nullopt,
                             at_prompt_end - at_start,
                             model.counters() - at_prompt_end};
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
    const bool saved = saver.at_end(arguments.quiet);
    if (generation.error) return report(*generation.error);
    if (!saved) return kFailed;
    return generation.reason == engine::StopReason::interrupted ? kInterrupted : kOk;
}

/// The file's session, back to where the prompt leaves it.
Result<void> resume(engine::Session& session, const Start& start) {
    if (!start.saved) return {};
    if (const auto ok = session.load(*start.saved); !ok) return ok;
    const auto back = session.rewind(
        start.position, [] { return !interrupted(); }, start.unread.empty());
    if (!back) return pass(back);
    if (!back->warning.empty()) warn(back->warning);
    if (session.position() == start.position) return {};
    return fail(ErrorKind::interrupted, start.saved->file().path(),
                "going back was stopped; the file is as it was");
}

/// Room for the prompt and what is to come, within what the model can.
int64_t context_for(int64_t prompt_tokens, int64_t max_tokens, int64_t model_context) {
    const int64_t wanted = prompt_tokens + (max_tokens > 0 ? max_tokens : kDefaultReplyTokens);
    return std::min(std::max(wanted, kDefaultContext), model_context);
}

int run(Arguments& arguments) {
    const bool seed_given = arguments.seed.has_value();
    if (const auto ok = check_sampling(arguments.sampler, arguments.seed); !ok) return report(ok.error());
    auto model = engine::Model::open(arguments.model.model);
    if (!model) return report(model.error());
    const auto& config = model->config();
    const auto tokenizer = engine::open_tokenizer(model->container(), config.vocab_size);
    if (!tokenizer) return report(tokenizer.error());
    const Tokenizer* text = *tokenizer ? &**tokenizer : nullptr;
    if (!text && !arguments.stop.empty()) {
        return report({ErrorKind::invalid, "--stop", "needs a tokenizer, and the model came without one"});
    }
    auto saved = open_saved(arguments.session.file);
    if (!saved) return report(saved.error());
    if (*saved && arguments.chat) {
        return report({ErrorKind::invalid, arguments.session.file,
                       "holds a conversation; `waste chat --session` goes on with it"});
    }
    const bool goes_on = *saved && !has_prompt(arguments.prompt);
    const auto prompt = goes_on ? Prompt{} : make_prompt(arguments, text, arguments.model.model);
    if (!prompt) return report(prompt.error());
    const auto start = find_start(arguments, *prompt, std::move(*saved));
    if (!start) return report(start.error());
    const auto stop_ids = engine::find_stop_ids(*model, text);
    if (!stop_ids) return report(stop_ids.error());

    const auto prompt_tokens = start->position + static_cast<int64_t>(start->unread.size());
    auto options = session_options(arguments.model,
                                   context_for(prompt_tokens, arguments.max_tokens, config.max_context));
    if (!options) return report(options.error());
    if (prompt_tokens > options->context_length) {
        return report(
            {ErrorKind::capacity, "prompt",
             fmt::format("has {} tokens, the context is {}; choose a larger --ctx (the model takes {})",
                         prompt_tokens, options->context_length, config.max_context)});
    }
    const bool keeps = !arguments.session.file.empty() || !arguments.session.prompt_cache.empty();
    options->checkpoints = checkpoint_count(arguments.session, arguments.model.memory, config, keeps);
    const auto held = hold_model(*model, arguments.model.memory, *options);
    if (!held) return report(held.error());
    const LearnedUses learned(*model, arguments.model.memory);
    auto session = engine::Session::create(*model, *options);
    if (!session) return report(session.error());
    catch_interrupts();
    if (const auto ok = resume(*session, *start); !ok) return report(ok.error());
    if (start->saved && !seed_given) arguments.sampler.seed = session->sampler().seed;
    session->set_sampler(arguments.sampler);
    const engine::MemoryWatch watch(model->experts());
    if (arguments.verbose) {
        put_err(fmt::format("{}: tier {}, {} threads, {}, context {}, seed {}\n",
                            printable(arguments.model.model), kernels::tier_name(options->tier),
                            options->threads, arguments.model.compute, options->context_length,
                            arguments.sampler.seed));
        put_err(holding_text(*model, held->plan));
        for (const std::string& warning : text ? text->warnings() : std::vector<std::string>()) warn(warning);
    }
    const ReplyOutput::Style style{arguments.json, arguments.quiet, arguments.think};
    ReplyOutput output(text, prompt->chat, arguments.stop, style);
    const engine::GenerateOptions generation{arguments.max_tokens, *stop_ids};
    if (arguments.routing_trace.empty())
        return answer(arguments, *model, *session, start->unread, generation, output);
    auto trace = engine::RoutingTrace::create(arguments.routing_trace, config, arguments.trace_scores);
    if (!trace) return report(trace.error());
    session->set_trace(&*trace);
    const int code = answer(arguments, *model, *session, start->unread, generation, output);
    const auto written = trace->finish();
    return written ? code : report(written.error());
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
    add_sampling_options(*command, arguments->sampler, arguments->seed);
    add_session_options(*command, arguments->session);
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
