// waste tokenize and waste detokenize: text to token ids and back, by the model's own tokenizer.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "container/file.h"
#include "container/reader.h"
#include "engine/config.h"
#include "engine/text/tokenizer.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using container::join_path;
using engine::Tokenizer;
using nlohmann::json;

constexpr const char* kTokenizeAbout =
    "Prints the token ids of a text, separated by commas, as `waste run --ids` reads them.\n"
    "Text never becomes a control token, whatever it spells. Without TEXT and --file, stdin is read, to the "
    "last\n"
    "byte: a line end there is part of the text.";

constexpr const char* kTokenizeFooter =
    "Examples:\n"
    "  waste tokenize ~/k3.waste 'Hello, world!'\n"
    "  waste tokenize ~/Kimi-K3 --file prompt.txt --json\n"
    "  printf '%s' \"$TEXT\" | waste tokenize ~/k3.waste";

constexpr const char* kDetokenizeAbout =
    "Prints the text of token ids, and nothing else: bytes that are no UTF-8 become U+FFFD, control tokens "
    "appear\n"
    "by name. Without IDS and --ids, stdin is read.";

constexpr const char* kDetokenizeFooter =
    "Examples:\n"
    "  waste detokenize ~/k3.waste 19180,11,2695,0\n"
    "  waste detokenize ~/k3.waste --ids ids.txt\n"
    "  waste tokenize ~/k3.waste 'there and back' | waste detokenize ~/k3.waste";

constexpr uint64_t kMaxFileBytes = 64 << 20;

struct Arguments {
    std::string model;
    std::string text;
    std::string file;  ///< of text or of ids; empty: `text` or `ids`
    std::vector<std::string> ids;
    bool as_json = false;
};

struct ModelTokenizer {
    Tokenizer tokenizer;
    int64_t vocab_size;
};

Result<ModelTokenizer> container_tokenizer(const std::string& path) {
    const auto container = container::Container::open(path);
    if (!container) return pass(container);
    const auto config = engine::parse_config(container->manifest().config, path + ": config");
    if (!config) return pass(config);
    auto tokenizer = require_tokenizer(*container, config->vocab_size);
    if (!tokenizer) return pass(tokenizer);
    return ModelTokenizer{std::move(*tokenizer), config->vocab_size};
}

Result<ModelTokenizer> release_tokenizer(const std::string& path) {
    const auto read = [&](const char* name) {
        return container::read_text_file(join_path(path, name), kMaxFileBytes);
    };
    const auto config_text = read("config.json");
    if (!config_text) return pass(config_text);
    const auto config = engine::parse_config(*config_text, join_path(path, "config.json"));
    if (!config) return pass(config);
    const auto ranks = read("tiktoken.model");
    if (!ranks) return pass(ranks);
    const auto specials = read("tokenizer_config.json");
    if (!specials && specials.error().kind != ErrorKind::not_found) return pass(specials);
    auto tokenizer = Tokenizer::create(*ranks, specials ? *specials : "{}", config->vocab_size, path);
    if (!tokenizer) return pass(tokenizer);
    return ModelTokenizer{std::move(*tokenizer), config->vocab_size};
}

Result<ModelTokenizer> tokenizer_of(const std::string& path) {
    const bool release =
        !container::is_container(path) && container::is_file(join_path(path, container::kConfigName));
    return release ? release_tokenizer(path) : container_tokenizer(path);
}

json tokens_json(const Tokenizer& tokenizer, const std::vector<int32_t>& ids) {
    json tokens = json::array();
    for (const int32_t id : ids) {
        std::string hex;
        for (const char c : tokenizer.bytes(id)) hex += fmt::format("{:02x}", static_cast<unsigned char>(c));
        tokens.push_back({{"id", id}, {"text", tokenizer.decode({&id, 1}, true)}, {"bytes", hex}});
    }
    return tokens;
}

int tokenize(const Arguments& arguments, bool has_text) {
    const auto model = tokenizer_of(arguments.model);
    if (!model) return report(model.error());
    const auto text = has_text ? Result<std::string>(arguments.text)
                               : read_text(arguments.file.empty() ? "-" : arguments.file);
    if (!text) return report(text.error());
    const auto ids = model->tokenizer.encode(*text);
    if (!ids) return report(ids.error());
    if (arguments.as_json) {
        const json out = {{"ids", *ids}, {"tokens", tokens_json(model->tokenizer, *ids)}};
        put_out(fmt::format("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace)));
    } else {
        put_out(fmt::format("{}\n", fmt::join(*ids, ",")));
    }
    return kOk;
}

Result<std::vector<int32_t>> chosen_ids(const Arguments& arguments) {
    if (arguments.ids.empty()) return read_ids(arguments.file.empty() ? "-" : arguments.file);
    return parse_ids(fmt::format("{}", fmt::join(arguments.ids, " ")), "IDS");
}

int detokenize(const Arguments& arguments) {
    const auto model = tokenizer_of(arguments.model);
    if (!model) return report(model.error());
    const auto ids = chosen_ids(arguments);
    if (!ids) return report(ids.error());
    for (const int32_t id : *ids) {
        if (id < model->vocab_size) continue;
        return report({ErrorKind::invalid, fmt::format("id {}", id),
                       fmt::format("the model's vocabulary ends at {}", model->vocab_size - 1)});
    }
    const std::string text = model->tokenizer.decode(*ids, true);
    // Exact on a pipe or in a file, so that it can be tokenized again; a terminal gets its prompt back.
    fwrite(text.data(), 1, text.size(), stdout);
    if (stdout_is_terminal()) put_out("\n");
    return kOk;
}

CLI::App* add_command(CLI::App& app, const char* name, const char* summary, Arguments& arguments) {
    CLI::App* command = app.add_subcommand(name, summary);
    command
        ->add_option("model", arguments.model,
                     "Container, or a release's folder with config.json and tiktoken.model")
        ->required()
        ->type_name("MODEL");
    return command;
}

}  // namespace

void add_tokenize_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = add_command(app, "tokenize", "Token ids of a text", *arguments);
    set_help(*command, kTokenizeAbout, kTokenizeFooter);
    CLI::Option* text = command->add_option("text", arguments->text, "The text")->type_name("TEXT");
    command->add_option("--file", arguments->file, "Read the text from a file; - is stdin")
        ->excludes(text)
        ->type_name("FILE");
    command->add_flag("--json", arguments->as_json, "Print JSON: ids, and each token's text and bytes");
    command->callback([arguments, text, &action] {
        const bool has_text = text->count() > 0;
        action = [arguments, has_text] { return tokenize(*arguments, has_text); };
    });
}

void add_detokenize_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = add_command(app, "detokenize", "Text of token ids", *arguments);
    set_help(*command, kDetokenizeAbout, kDetokenizeFooter);
    CLI::Option* ids = command->add_option("ids", arguments->ids, "Token ids, separated by commas or blanks");
    ids->type_name("IDS");
    command->add_option("--ids", arguments->file, "Read the ids from a file; - is stdin")
        ->excludes(ids)
        ->type_name("FILE");
    command->callback([arguments, &action] { action = [arguments] { return detokenize(*arguments); }; });
}

}  // namespace waste::tools
