// waste eval: what a model thinks of a text, in numbers.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>

#include "container/safetensors.h"
#include "engine/dump.h"
#include "engine/evaluate.h"
#include "engine/model_text.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kAbout =
    "Prints the next-token distribution after a prompt; or with --perplexity the perplexity of a text; or "
    "with --dump\n"
    "every intermediate value of a run, for comparison with another implementation.\n\n"
    "Perplexity: the file is encoded as ordinary text without BOS and cut into windows of --window ids that "
    "begin\n"
    "every --stride ids; each runs from an empty state; a window's first token and tokens an earlier window "
    "scored are\n"
    "not scored; what follows the last full window is dropped. exp of the mean negative log likelihood, in "
    "f64.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste eval demo.waste \"The capital of France is\"\n"
    "  waste eval demo.waste --perplexity heldout.txt --json\n"
    "  waste eval tiny.waste --ids prompt.ids --compute f32 --dump run.safetensors";

struct Arguments {
    ModelArguments model;
    PromptArguments prompt;
    int64_t top = 10;
    std::string perplexity;
    engine::PerplexityOptions windows{512, 0, 0};  // stride 0: the window
    std::string dump;
    std::string name = "a";
    int64_t greedy = 32;
    bool json = false;
    bool quiet = false;
};

Result<std::vector<int32_t>> prompt_ids(const Arguments& arguments, const engine::Model& model) {
    if (!arguments.prompt.ids.empty()) return read_ids(arguments.prompt.ids);
    const auto tokenizer = require_tokenizer(model.container(), model.config().vocab_size);
    if (!tokenizer) return pass(tokenizer);
    const auto text = prompt_text(arguments.prompt);
    if (!text) return pass(text);
    return tokenizer->encode(*text);
}

int print_distribution(const Arguments& arguments, const engine::Model& model, engine::Session& session,
                       std::span<const int32_t> ids) {
    if (const auto ok = session.feed(ids); !ok) return report(ok.error());
    const auto logits = session.logits();
    if (std::any_of(logits.begin(), logits.end(), [](float logit) { return std::isnan(logit); })) {
        return report({ErrorKind::corrupt, arguments.model.model, "the model's output is not a number"});
    }
    const auto tokenizer = engine::open_tokenizer(model.container(), model.config().vocab_size);
    if (!tokenizer) return report(tokenizer.error());
    nlohmann::ordered_json rows = nlohmann::ordered_json::array();
    for (const auto& token : engine::likeliest(logits, arguments.top)) {
        const std::string text = *tokenizer ? (*tokenizer)->decode({&token.id, 1}, true) : "";
        rows.push_back(
            {{"id", token.id}, {"text", text}, {"logit", token.logit}, {"probability", token.probability}});
        if (!arguments.json) {
            put_out(fmt::format("{:>8}  {:8.4f} %  {:10.5f}  {}\n", token.id, 100 * token.probability,
                                token.logit, printable(text)));
        }
    }
    if (arguments.json) {
        const nlohmann::ordered_json out{{"prompt_tokens", ids.size()}, {"next", rows}};
        put_out(fmt::format("{}\n", out.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)));
    }
    return kOk;
}

int print_perplexity(const Arguments& arguments, const engine::Model& model, engine::Session& session,
                     const engine::PerplexityOptions& windows) {
    const auto text = read_text(arguments.perplexity);
    if (!text) return report(text.error());
    const auto tokenizer = require_tokenizer(model.container(), model.config().vocab_size);
    if (!tokenizer) return report(tokenizer.error());
    const auto ids = tokenizer->encode(*text);
    if (!ids) return report(Error{ids.error().kind, arguments.perplexity, ids.error().text()});
    catch_interrupts();
    ProgressLine progress("windows");
    const auto result = engine::measure_perplexity(session, *ids, windows, [&](int64_t done, int64_t total) {
        if (!arguments.quiet) {
            progress.update(static_cast<uint64_t>(done), static_cast<uint64_t>(total), 0, "perplexity");
        }
        return !interrupted();
    });
    progress.finish();
    if (!result) return report(result.error());
    if (arguments.json) {
        nlohmann::ordered_json json;
        json["perplexity"] = result->perplexity;
        json["loss"] = result->loss;
        json["scored_tokens"] = result->scored_tokens;
        json["tokens"] = ids->size();
        json["windows"] = result->window_nll.size();
        json["window"] = windows.window;
        json["stride"] = windows.stride;
        json["window_nll_sum"] = result->window_nll;
        put_out(fmt::format("{}\n", json.dump(2)));
    } else {
        put_out(
            fmt::format("perplexity {:.4f}, loss {:.6f} nats a token over {} tokens in {} windows of {}\n",
                        result->perplexity, result->loss, result->scored_tokens, result->window_nll.size(),
                        windows.window));
    }
    return kOk;
}

int dump(const Arguments& arguments, const engine::Model& model, engine::Session& session,
         std::span<const int32_t> ids) {
    const auto tensors = engine::dump_sequence(model, session, ids, arguments.name, arguments.greedy);
    if (!tensors) return report(tensors.error());
    const auto ok = container::write_safetensors(arguments.dump, *tensors);
    if (!ok) return report(ok.error());
    if (!arguments.quiet) put_err(fmt::format("{}: {} tensors\n", arguments.dump, tensors->size()));
    return kOk;
}

int eval(const Arguments& arguments) {
    auto model = engine::Model::open(arguments.model.model);
    if (!model) return report(model.error());
    engine::PerplexityOptions windows = arguments.windows;
    if (windows.stride == 0) windows.stride = windows.window;
    const bool of_a_text = !arguments.perplexity.empty();
    const auto ids = of_a_text ? Result<std::vector<int32_t>>() : prompt_ids(arguments, *model);
    if (!ids) return report(ids.error());
    if (!of_a_text && ids->empty()) {
        return report({ErrorKind::invalid, "prompt", "is empty; the model needs at least one token"});
    }
    const int64_t generated = arguments.dump.empty() ? 0 : arguments.greedy;
    auto options = session_options(
        arguments.model, of_a_text ? windows.window : static_cast<int64_t>(ids->size()) + generated);
    if (!options) return report(options.error());
    const auto held = hold_model(*model, arguments.model.memory, *options);
    if (!held) return report(held.error());
    auto session = engine::Session::create(*model, *options);
    if (!session) return report(session.error());
    if (of_a_text) return print_perplexity(arguments, *model, *session, windows);
    return arguments.dump.empty() ? print_distribution(arguments, *model, *session, *ids)
                                  : dump(arguments, *model, *session, *ids);
}

}  // namespace

void add_eval_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("eval", "Next-token distribution, perplexity, dumps");
    set_help(*command, kAbout, kFooter);
    add_model_options(*command, arguments->model);
    add_prompt_options(*command, arguments->prompt);
    command->add_option("--top", arguments->top, "How many of the likeliest tokens to print")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
        ->capture_default_str();
    auto* perplexity =
        command->add_option("--perplexity", arguments->perplexity, "Measure this text's perplexity");
    perplexity->type_name("FILE");
    for (const char* other : {"prompt", "--file", "--ids"}) perplexity->excludes(command->get_option(other));
    command->add_option("--window", arguments->windows.window, "Ids in a window")
        ->check(CLI::Range(int64_t{2}, int64_t{1} << 24))
        ->capture_default_str()
        ->needs(perplexity);
    command
        ->add_option("--stride", arguments->windows.stride,
                     "Ids from one window's start to the next (default: the window)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 24))
        ->needs(perplexity);
    command->add_option("--windows", arguments->windows.most_windows, "Stop after this many (default: all)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
        ->needs(perplexity);
    auto* dump_to =
        command->add_option("--dump", arguments->dump, "Write every intermediate value to this file");
    dump_to->type_name("OUT.safetensors")->excludes(perplexity);
    command->add_option("--name", arguments->name, "Name of the sequence in the dump")
        ->capture_default_str()
        ->needs(dump_to);
    command->add_option("--greedy", arguments->greedy, "Greedy steps after the prompt in the dump; 0: none")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 24))
        ->capture_default_str()
        ->needs(dump_to);
    command->add_flag("--json", arguments->json, "Machine-readable output");
    command->add_flag("-q,--quiet", arguments->quiet, "No progress");
    command->callback([arguments, &action] { action = [arguments] { return eval(*arguments); }; });
}

}  // namespace waste::tools
