// waste info: what a container is.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>

#include "container/reader.h"
#include "engine/model_text.h"
#include "engine/plan.h"
#include "engine/text/chat.h"
#include "tools/command.h"
#include "tools/describe.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using nlohmann::json;

constexpr const char* kAbout =
    "Says what a container is: model, sizes, formats, tokenizer, fingerprint.\n"
    "Weights are not read; `waste verify` does that.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste info ~/k3.waste\n"
    "  waste info ~/k3.waste --tensors\n"
    "  waste info ~/k3.waste --json | jq .fingerprint";

struct Arguments {
    std::string model;
    bool as_json = false;
    bool tensors = false;
    bool experts = false;
};

struct Facts {
    const container::Container& container;
    engine::ModelConfig config;
    engine::ContainerSizes sizes;
    bool has_tokenizer;
    std::string chat_format;                        ///< empty: none
    std::map<std::string, uint64_t> trunk_formats;  ///< bytes of the trunk's tensors by format

    const container::Manifest& manifest() const { return container.manifest(); }
};

Result<Facts> gather(const container::Container& container) {
    const container::Manifest& manifest = container.manifest();
    const auto config = engine::parse_config(manifest.config, container.directory() + ": config");
    if (!config) return pass(config);
    const auto tokenizer = engine::open_tokenizer(container, config->vocab_size);
    if (!tokenizer) return pass(tokenizer);
    Facts facts{container,
                *config,
                engine::container_sizes(manifest.trunk_bytes, manifest.tensors, manifest.banks),
                tokenizer->has_value(),
                {},
                {}};
    if (facts.has_tokenizer) {
        if (const auto format = engine::detect_chat_format(**tokenizer)) {
            facts.chat_format = *format == engine::ChatFormat::xtml ? "xtml" : "im";
        }
    }
    for (const container::TensorEntry& tensor : manifest.tensors) {
        facts.trunk_formats[std::string(kernels::format_info(tensor.format).name)] += tensor.bytes;
    }
    return facts;
}

std::string_view format_name(kernels::Format format) {
    return kernels::format_info(format).name;
}

const char* layout_name(container::Layout layout) {
    return layout == container::Layout::panels ? "panels" : "rows";
}

void print_text(const Arguments& arguments, const Facts& facts) {
    const auto line = [](const char* label, const std::string& value) {
        put_out(fmt::format("{:<12}{}\n", label, value));
    };
    const container::Manifest& manifest = facts.manifest();
    line("container", printable(arguments.model));
    line("model", fmt::format("{}, {}", family_name(facts.config.family), layers_text(facts.config)));
    line("context", fmt::format("{} positions", facts.config.max_context));
    line("vocabulary",
         fmt::format("{} rows; {}", facts.config.vocab_size,
                     facts.has_tokenizer ? "with a tokenizer" : "no tokenizer, runs on token ids only"));
    line("chat", facts.chat_format.empty() ? "no format known for this vocabulary" : facts.chat_format);
    line("recipe", fmt::format("trunk {}, experts {}", printable(manifest.trunk_recipe),
                               printable(manifest.expert_recipe)));
    std::string formats;
    for (const auto& [name, bytes] : facts.trunk_formats) {
        formats += fmt::format("{}{} {}", formats.empty() ? "" : ", ", name, memory_text(bytes));
    }
    line("trunk", fmt::format("{} in {} tensors: {}", memory_text(facts.sizes.trunk_bytes),
                              manifest.tensors.size(), formats));
    line("experts", fmt::format("{} in {} banks, {} an expert", memory_text(facts.sizes.expert_bytes),
                                manifest.banks.size(), memory_text(facts.sizes.record_bytes)));
    std::string files;
    for (const auto& file : manifest.files) files += (files.empty() ? "" : ", ") + printable(file.name);
    line("files", files.empty() ? "none" : files);
    line("total", memory_text(facts.sizes.total_bytes()));
    line("fingerprint", manifest.fingerprint);
}

void print_tensors(const container::Manifest& manifest) {
    put_out(fmt::format("\n{:<52} {:<6} {:<7} {:>14}  {}\n", "tensor", "format", "layout", "bytes", "shape"));
    for (const container::TensorEntry& tensor : manifest.tensors) {
        put_out(fmt::format("{:<52} {:<6} {:<7} {:>14}  [{}]\n", printable(tensor.name),
                            format_name(tensor.format), layout_name(tensor.layout), tensor.bytes,
                            fmt::join(tensor.shape, ", ")));
    }
}

void print_banks(const container::Manifest& manifest) {
    put_out(fmt::format("\n{:>5}  {:<20} {:<6} {:>8} {:>7} {:>7} {:>13} {:>16}\n", "layer", "file", "format",
                        "experts", "input", "inner", "record bytes", "file bytes"));
    for (const container::BankEntry& bank : manifest.banks) {
        put_out(fmt::format("{:>5}  {:<20} {:<6} {:>8} {:>7} {:>7} {:>13} {:>16}\n", bank.layer,
                            printable(bank.file), format_name(bank.shape.format), bank.shape.experts,
                            bank.shape.input_size, bank.shape.intermediate_size, bank.shape.record_bytes(),
                            bank.bytes));
    }
}

json tensors_json(const container::Manifest& manifest) {
    json out = json::array();
    for (const container::TensorEntry& tensor : manifest.tensors) {
        out.push_back({{"name", tensor.name},
                       {"format", format_name(tensor.format)},
                       {"layout", layout_name(tensor.layout)},
                       {"shape", tensor.shape},
                       {"offset", tensor.offset},
                       {"bytes", tensor.bytes}});
    }
    return out;
}

json banks_json(const container::Manifest& manifest) {
    json out = json::array();
    for (const container::BankEntry& bank : manifest.banks) {
        out.push_back({{"layer", bank.layer},
                       {"file", bank.file},
                       {"format", format_name(bank.shape.format)},
                       {"experts", bank.shape.experts},
                       {"input_size", bank.shape.input_size},
                       {"intermediate_size", bank.shape.intermediate_size},
                       {"record_bytes", bank.shape.record_bytes()},
                       {"bytes", bank.bytes}});
    }
    return out;
}

void print_json(const Arguments& arguments, const Facts& facts) {
    const container::Manifest& manifest = facts.manifest();
    const engine::ModelConfig& config = facts.config;
    json out = {{"container", arguments.model},
                {"format_version", container::kFormatVersion},
                {"fingerprint", manifest.fingerprint},
                {"family", family_id(config.family)},
                {"layers", config.num_hidden_layers},
                {"kda_layers", config.kda_layer_count()},
                {"mla_layers", config.mla_layer_count()},
                {"moe_layers", config.moe_layer_count()},
                {"experts", config.num_experts},
                {"experts_per_token", config.num_experts_per_token},
                {"vocab_size", config.vocab_size},
                {"max_context", config.max_context},
                {"has_tokenizer", facts.has_tokenizer},
                {"chat_format", facts.chat_format.empty() ? json(nullptr) : json(facts.chat_format)},
                {"trunk_recipe", manifest.trunk_recipe},
                {"expert_recipe", manifest.expert_recipe},
                {"trunk_bytes", facts.sizes.trunk_bytes},
                {"trunk_bytes_by_format", facts.trunk_formats},
                {"expert_bytes", facts.sizes.expert_bytes},
                {"record_bytes", facts.sizes.record_bytes},
                {"total_bytes", facts.sizes.total_bytes()},
                {"files", json::array()}};
    for (const container::CarriedFile& file : manifest.files) {
        out["files"].push_back({{"name", file.name}, {"bytes", file.bytes}});
    }
    if (arguments.tensors) out["tensors"] = tensors_json(manifest);
    if (arguments.experts) out["banks"] = banks_json(manifest);
    put_out(fmt::format("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace)));
}

int info(const Arguments& arguments) {
    const auto container = container::Container::open(arguments.model);
    if (!container) return report(container.error());
    const auto facts = gather(*container);
    if (!facts) return report(facts.error());
    if (arguments.as_json) {
        print_json(arguments, *facts);
        return kOk;
    }
    print_text(arguments, *facts);
    if (arguments.tensors) print_tensors(facts->manifest());
    if (arguments.experts) print_banks(facts->manifest());
    return kOk;
}

}  // namespace

void add_info_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("info", "What a container is");
    set_help(*command, kAbout, kFooter);
    command->add_option("model", arguments->model, "Container made by `waste convert`")
        ->required()
        ->type_name("MODEL");
    command->add_flag("--tensors", arguments->tensors, "List every tensor of the trunk");
    command->add_flag("--experts", arguments->experts, "List the banks of experts");
    command->add_flag("--json", arguments->as_json, "Print JSON, sizes in bytes");
    command->callback([arguments, &action] { action = [arguments] { return info(*arguments); }; });
}

}  // namespace waste::tools
