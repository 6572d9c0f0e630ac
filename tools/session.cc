// waste session: what a session file holds, whether it is whole, its text.
#include "engine/session.h"

#include <fmt/chrono.h>
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/model_text.h"
#include "engine/text/transcript.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::SavedSession;
using Json = nlohmann::ordered_json;

constexpr const char* kAbout =
    "Looks into the files that `waste run --session` and `waste chat --session` write. Nothing is changed.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste session info story.session\n"
    "  waste session verify story.session\n"
    "  waste session export story.session | jq -r .text";

struct Arguments {
    std::string file;
    std::string model;  ///< empty: where the session ran from
    bool as_json = false;
};

std::string format_name(uint32_t element) {
    return element == static_cast<uint32_t>(engine::StateFormat::bf16) ? "bf16" : "f32";
}

/// What a kind of section takes of the file.
struct Share {
    uint64_t bytes = 0;
    std::string format;
};

struct Shares {
    Share states, checkpoints, latents, other;
};

Shares shares_of(const SavedSession& saved) {
    Shares out;
    for (const container::SectionEntry& entry : saved.file().entries()) {
        Share* share = &out.other;
        switch (static_cast<engine::SectionKind>(entry.name.kind)) {
            case engine::SectionKind::recurrent:
                share = entry.name.first == engine::kPresentState ? &out.states : &out.checkpoints;
                break;
            case engine::SectionKind::latents:
                share = &out.latents;
                break;
            default:
                break;
        }
        share->bytes += entry.stored_bytes;
        share->format = format_name(entry.element);
    }
    return out;
}

Json info_json(const SavedSession& saved) {
    const engine::SessionAbout& about = saved.about();
    Json json;
    json["file"] = saved.file().path();
    json["bytes"] = saved.file().file_bytes();
    json["model"] = about.model;
    json["fingerprint"] = saved.file().fingerprint();
    json["saved_at"] = about.saved_at;
    json["position"] = saved.position();
    json["sampler"] = {{"temperature", about.sampler.temperature},
                       {"top_k", about.sampler.top_k},
                       {"top_p", about.sampler.top_p},
                       {"min_p", about.sampler.min_p},
                       {"repeat_penalty", about.sampler.repeat_penalty},
                       {"seed", saved.history().seed()}};
    Json& turns = json["turns"] = Json::array();
    for (size_t i = 0; i < about.turns.size(); i++) {
        const bool last = i + 1 == about.turns.size();
        turns.push_back({{"role", engine::turn_role_name(about.turns[i].role)},
                         {"begin", about.turns[i].begin},
                         {"end", last ? saved.position() : about.turns[i + 1].begin}});
    }
    Json& checkpoints = json["checkpoints"] = Json::array();
    for (const engine::SavedCheckpoint& kept : about.checkpoints) checkpoints.push_back(kept.position);
    const Shares shares = shares_of(saved);
    const auto share_json = [](const Share& share) {
        return Json{{"bytes", share.bytes}, {"format", share.format}};
    };
    json["sections"] = {{"states", share_json(shares.states)},
                        {"checkpoints", share_json(shares.checkpoints)},
                        {"latents", share_json(shares.latents)},
                        {"other_bytes", shares.other.bytes}};
    return json;
}

void print_info(const SavedSession& saved) {
    const engine::SessionAbout& about = saved.about();
    const auto row = [](const char* label, const std::string& text) {
        put_out(fmt::format("{:<12} {}\n", label, text));
    };
    row("file", fmt::format("{}, {}", printable(saved.file().path()), bytes_text(saved.file().file_bytes())));
    row("model", fmt::format("{} ({})", printable(about.model), saved.file().fingerprint()));
    row("saved",
        fmt::format("{:%Y-%m-%d %H:%M:%S}", fmt::localtime(static_cast<std::time_t>(about.saved_at))));
    row("tokens", fmt::format("{} in {} turns", saved.position(), about.turns.size()));
    row("sampling", fmt::format("temperature {}, top-p {}, seed {}", about.sampler.temperature,
                                about.sampler.top_p, saved.history().seed()));
    const Shares shares = shares_of(saved);
    row("states", fmt::format("{} ({})", bytes_text(shares.states.bytes), shares.states.format));
    row("latents", fmt::format("{} ({})", bytes_text(shares.latents.bytes), shares.latents.format));
    std::string positions;
    for (const engine::SavedCheckpoint& kept : about.checkpoints)
        positions += fmt::format("{}{}", positions.empty() ? ", at " : ", ", kept.position);
    row("checkpoints",
        fmt::format("{}{}: {}", about.checkpoints.size(), positions, bytes_text(shares.checkpoints.bytes)));
}

int info(const Arguments& arguments) {
    const auto saved = SavedSession::open(arguments.file);
    if (!saved) return report(saved.error());
    if (arguments.as_json) {
        put_out(info_json(*saved).dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    } else {
        print_info(*saved);
    }
    return kOk;
}

int verify(const Arguments& arguments) {
    const auto saved = SavedSession::open(arguments.file);
    if (!saved) return report(saved.error());
    if (const auto ok = saved->verify(); !ok) return report(ok.error());
    put_out(fmt::format("{}: whole; {} sections, {}, every byte matches its checksum\n",
                        printable(arguments.file), saved->file().entries().size(),
                        bytes_text(saved->file().file_bytes())));
    return kOk;
}

std::string text_of(const engine::Tokenizer& tokenizer, std::span<const int32_t> ids) {
    std::string text;
    for (const int32_t id : ids) text += tokenizer.bytes(id);
    return text;
}

/// The messages of a conversation, where there is one.
Json messages_json(const engine::Tokenizer& tokenizer, std::span<const int32_t> ids) {
    Json out = Json::array();
    const auto format = engine::detect_chat_format(tokenizer);
    if (!format) return out;
    for (const engine::TranscriptMessage& entry : engine::read_transcript(tokenizer, *format, ids)) {
        Json message = {{"role", entry.message.role}, {"content", entry.message.content}};
        if (!entry.message.reasoning.empty()) message["reasoning_content"] = entry.message.reasoning;
        if (!entry.type.empty()) message["type"] = entry.type;
        if (!entry.complete) message["complete"] = false;
        out.push_back(std::move(message));
    }
    return out;
}

int export_text(const Arguments& arguments) {
    const auto saved = SavedSession::open(arguments.file);
    if (!saved) return report(saved.error());
    Json json = info_json(*saved);
    const auto& ids = saved->history().tokens;
    json["ids"] = ids;
    const std::string directory = arguments.model.empty() ? saved->about().model : arguments.model;
    const auto model = engine::Model::open(directory);
    if (!model) {
        warn(fmt::format("without its text: {}; --model names the model's directory", model.error().text()));
    } else if (model->container().manifest().fingerprint != saved->file().fingerprint()) {
        return report(
            {ErrorKind::invalid, arguments.file,
             fmt::format("was saved with another model than {}; --model names the right one", directory)});
    } else {
        const auto tokenizer = engine::open_tokenizer(model->container(), model->config().vocab_size);
        if (!tokenizer) return report(tokenizer.error());
        if (*tokenizer) {
            const engine::Tokenizer& text = **tokenizer;
            json["text"] = text_of(text, ids);
            for (Json& turn : json["turns"]) {
                const auto begin = turn["begin"].get<size_t>(), end = turn["end"].get<size_t>();
                turn["text"] = text_of(text, std::span(ids).subspan(begin, end - begin));
            }
            json["messages"] = messages_json(text, ids);
        }
    }
    put_out(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
    return kOk;
}

}  // namespace

void add_session_command(CLI::App& app, Action& action) {
    CLI::App* command = app.add_subcommand("session", "Look into session files");
    set_help(*command, kAbout, kFooter);
    command->require_subcommand(1);
    const auto add = [&](const char* name, const char* about, int (*run)(const Arguments&)) {
        auto arguments = std::make_shared<Arguments>();
        CLI::App* sub = command->add_subcommand(name, about);
        set_help(*sub, about, kFooter);
        sub->add_option("FILE", arguments->file, "The session file")->required();
        sub->callback([arguments, run, &action] { action = [arguments, run] { return run(*arguments); }; });
        return std::pair(sub, arguments);
    };
    const auto [inform, of_info] = add("info", "Says what a session file holds.", info);
    inform->add_flag("--json", of_info->as_json, "Print JSON");
    add("verify", "Reads a session file whole and compares checksums.", verify);
    const auto [exporting, of_export] =
        add("export", "Prints a session as JSON: what info says, its tokens, its text, its messages.",
            export_text);
    exporting->add_option("--model", of_export->model,
                          "The model's directory (default: the one it ran from)");
}

}  // namespace waste::tools
