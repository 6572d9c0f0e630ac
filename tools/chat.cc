// waste chat: a conversation with a model.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string_view>

#include "engine/memory_watch.h"
#include "engine/model_text.h"
#include "tools/chat_conversation.h"
#include "tools/chat_loop.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/line_reader.h"
#include "tools/model_options.h"
#include "tools/sampling_options.h"
#include "tools/session_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kAbout =
    "Talks with a model in its own chat format. Lines are messages, /help lists the commands among them.\n"
    "Answers go to stdout, all else to stderr; without a terminal each line of stdin is a message. Ctrl-C "
    "stops\n"
    "an answer and keeps it, Ctrl-D leaves. With --session the conversation is kept after every answer, and "
    "goes\n"
    "on where it was left, at once: nothing is read twice.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste chat k3.waste --session plans.session\n"
    "  waste chat k3.waste --effort low --system \"Answer in French.\"\n"
    "  waste chat demo.waste --no-think\n"
    "  printf 'Hello.\\nAnd in German?\\n' | waste chat kl.waste --seed 1 > answers.txt";

constexpr int64_t kDefaultContext = 8192;
constexpr int64_t kDefaultRoom = 4096;  ///< behind a conversation that is resumed

struct Arguments {
    ModelArguments model;
    engine::SamplerOptions sampler;
    std::optional<uint64_t> seed;
    ConversationSettings settings{{}, 0, true, ""};
    std::string system;
    std::string messages;  ///< a file; empty: none
    SessionArguments session;
    bool hide_thinking = false;
    bool fold_thinking = false;
    bool quiet = false;
    bool verbose = false;
};

/// The conversation of --messages, if it is given.
Result<std::optional<engine::ChatRequest>> begun_elsewhere(const Arguments& arguments) {
    if (arguments.messages.empty()) return std::nullopt;
    const auto text = read_text(arguments.messages);
    if (!text) return pass(text);
    engine::ChatOptions defaults;
    defaults.thinking = arguments.settings.thinking;
    defaults.effort = arguments.settings.effort;
    auto request = engine::parse_chat_json(*text, defaults, arguments.messages);
    if (!request) return pass(request);
    return std::move(*request);
}

/// What the command line asks for must exist in the model's format.
Result<void> check_format(const CLI::App& command, const Arguments& arguments, engine::ChatFormat format) {
    if (format == engine::ChatFormat::xtml) return {};
    for (const char* option : {"--think", "--effort", "--hide-thinking", "--fold-thinking"}) {
        const bool only_declines = option == std::string_view("--think") && !arguments.settings.thinking;
        if (command.count(option) > 0 && !only_declines) {
            return fail(ErrorKind::invalid, option,
                        arguments.model.model + " has no thinking in its chat format");
        }
    }
    return {};
}

int chat(const CLI::App& command, Arguments& arguments) {
    if (const auto ok = check_sampling(arguments.sampler, arguments.seed); !ok) return report(ok.error());
    if (!arguments.settings.effort.empty() && !arguments.settings.thinking) {
        return report({ErrorKind::invalid, "--effort", "is about thinking, and --no-think leaves none"});
    }
    auto model = engine::Model::open(arguments.model.model);
    if (!model) return report(model.error());
    const auto& config = model->config();
    const auto tokenizer = require_tokenizer(model->container(), config.vocab_size);
    if (!tokenizer) return report(tokenizer.error());
    const auto format = engine::detect_chat_format(*tokenizer);
    if (!format) return report(format.error());
    if (const auto ok = check_format(command, arguments, *format); !ok) return report(ok.error());
    const auto stop_ids = engine::find_stop_ids(*model, &*tokenizer);
    if (!stop_ids) return report(stop_ids.error());
    const auto saved = open_saved(arguments.session.file);
    if (!saved) return report(saved.error());
    const auto request = begun_elsewhere(arguments);
    if (!request) return report(request.error());
    if (*saved && *request) {
        return report(
            {ErrorKind::invalid, "--messages", arguments.session.file + " has a conversation already"});
    }

    const int64_t needed = *saved ? (*saved)->position() + kDefaultRoom : 0;
    auto options =
        session_options(arguments.model, std::min(std::max(kDefaultContext, needed), config.max_context));
    if (!options) return report(options.error());
    options->checkpoints = checkpoint_count(arguments.session, arguments.model.memory, config, true);
    const auto held = hold_model(*model, arguments.model.memory, *options);
    if (!held) return report(held.error());
    const LearnedUses learned(*model, arguments.model.memory);
    auto session = engine::Session::create(*model, *options);
    if (!session) return report(session.error());
    const engine::MemoryWatch watch(model->experts());
    catch_interrupts();
    if (arguments.verbose) {
        put_err(fmt::format("{}: tier {}, {} threads, {}, context {}, seed {}\n",
                            printable(arguments.model.model), kernels::tier_name(options->tier),
                            options->threads, arguments.model.compute, options->context_length,
                            *arguments.seed));
        put_err(holding_text(*model, held->plan));
        for (const std::string& warning : tokenizer->warnings()) warn(warning);
    }

    Conversation conversation(*session, *tokenizer, *format, *stop_ids);
    conversation.settings = arguments.settings;
    conversation.settings.sampler = arguments.sampler;
    const auto lines = make_line_reader();
    ChatStyle style;
    style.quiet = arguments.quiet;
    if (arguments.hide_thinking) style.thinking = ShowThinking::hide;
    if (arguments.fold_thinking) style.thinking = ShowThinking::fold;
    ChatLoop loop(*session, conversation, *lines, arguments.session.file, style);
    if (*saved) {
        if (const auto ok = loop.load(arguments.session.file); !ok) return report(ok.error());
        engine::SamplerOptions sampler = session->sampler();
        take_given_sampling(command, arguments.sampler, sampler);
        if (command.count("--seed") > 0) sampler.seed = *arguments.seed;
        conversation.settings.sampler = sampler;
    }
    if (!arguments.system.empty()) conversation.add_system(arguments.system);
    if (*request) {
        if (const auto ok = loop.begin(**request); !ok) return report(ok.error());
    }
    return loop.run();
}

}  // namespace

void add_chat_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("chat", "Talk with a model");
    set_help(*command, kAbout, kFooter);
    add_model_options(*command, arguments->model);
    add_learn_option(*command, arguments->model.memory);
    command
        ->add_option("--session", arguments->session.file,
                     "Keep the conversation in this file; if it exists, go on in it")
        ->type_name("FILE");
    command
        ->add_option("--checkpoints", arguments->session.checkpoints,
                     "Most states kept in memory to go back to, two a turn; 0: going back reads again "
                     "(default: as many "
                     "as fit into a 32nd of the memory, 1 to 16)")
        ->check(CLI::Range(0, engine::kMostCheckpoints));
    auto* system =
        command->add_option("--system", arguments->system, "A system message, in front of your first one");
    command
        ->add_option(
            "--messages", arguments->messages,
            "Begin with the messages of a JSON file, as chat services take them: tools, calls, results, "
            "reasoning. Answered at once if they end with a question")
        ->type_name("FILE")
        ->excludes(system);
    command->add_flag("--think,!--no-think", arguments->settings.thinking,
                      "Let the model reason before it answers, or not (default: as K3's release does, yes)");
    command
        ->add_option("--effort", arguments->settings.effort,
                     "How much to reason; told to the model at the start")
        ->check(CLI::IsMember({"low", "high", "max"}));
    auto* hide = command->add_flag("--hide-thinking", arguments->hide_thinking, "Do not show reasoning");
    command
        ->add_flag("--fold-thinking", arguments->fold_thinking,
                   "Reasoning is part of the answer (default: on stderr, dimmed on a terminal)")
        ->excludes(hide);
    command
        ->add_option("-n", arguments->settings.max_tokens,
                     "Most tokens of an answer (default: until the model stops)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
    add_sampling_options(*command, arguments->sampler, arguments->seed);
    command->add_flag("-q,--quiet", arguments->quiet, "Do not say what answers cost");
    command->add_flag("-v,--verbose", arguments->verbose, "Say what is used: tier, threads, context, seed");
    command->callback([arguments, command, &action] {
        action = [arguments, command] { return chat(*command, *arguments); };
    });
}

}  // namespace waste::tools
