// waste convert: a release's folder becomes a container.
#include "engine/convert/convert.h"

#include <fmt/format.h>

#include <memory>

#include "kernels/format.h"
#include "tools/command.h"
#include "tools/describe.h"
#include "tools/help.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kAbout =
    "Converts a release (config.json, *.safetensors, tokenizer files) into a container that `waste run` "
    "maps.\n"
    "Everything is checked before the first byte is written. A conversion that was stopped or killed goes on "
    "where\n"
    "it was when the same command is given again; nothing finished is touched.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste convert ~/Kimi-K3 ~/k3.waste\n"
    "  waste convert ~/Kimi-Linear-48B ~/kl.waste --trunk q8 --experts q8\n"
    "  waste convert tests/data/demo-model /tmp/demo.waste --trunk bf16   # lossless";

struct Arguments {
    engine::ConvertOptions options;
    std::string trunk = "q4";
    std::string experts = "auto";
    bool quiet = false;
};

void print_summary(const Arguments& arguments, const engine::ConvertSummary& s) {
    if (s.finished) {
        put_err(fmt::format("{} is already a finished container of this model and recipe; nothing to do.\n",
                            printable(arguments.options.destination)));
        return;
    }
    put_err(fmt::format("{} release in {}: {} layers, {} of them with {} experts; {} tensors, {}\n",
                        family_name(s.family), arguments.options.source, s.layers, s.moe_layers,
                        s.experts_per_layer, s.source_tensors, bytes_text(s.source_bytes)));
    for (const std::string& line : s.ignored) put_err(fmt::format("  left out: {}\n", printable(line)));
    for (const std::string& line : s.notes) put_err(fmt::format("  note: {}\n", printable(line)));
    if (!s.has_tokenizer)
        put_err(fmt::format("  note: no tiktoken.model; the container will run on token ids only\n"));
    put_err(fmt::format(
        "{} {}: trunk {} ({}), experts {} ({}); {} free there\n", s.resumed ? "Going on with" : "Writing",
        arguments.options.destination, arguments.trunk, bytes_text(s.trunk_bytes),
        kernels::format_info(s.expert_format).name, bytes_text(s.expert_bytes), bytes_text(s.free_bytes)));
}

int convert(Arguments& arguments) {
    arguments.options.trunk = *engine::trunk_recipe_from_name(arguments.trunk);
    arguments.options.experts = kernels::format_from_name(arguments.experts);
    catch_interrupts();
    ProgressLine progress("B");
    engine::ConvertCallbacks callbacks;
    callbacks.on_start = [&](const engine::ConvertSummary& summary) {
        if (!arguments.quiet) print_summary(arguments, summary);
    };
    callbacks.on_progress = [&](const engine::ConvertProgress& p) {
        if (!arguments.quiet) progress.update(p.bytes_done, p.bytes_total, p.bytes_skipped, p.what);
        return !interrupted();
    };
    const auto fingerprint = engine::convert(arguments.options, callbacks);
    progress.finish();
    if (!fingerprint) return report(fingerprint.error());
    if (!arguments.quiet) {
        put_err(fmt::format("Done: {}, fingerprint {}\n", printable(arguments.options.destination),
                            *fingerprint));
    }
    return kOk;
}

}  // namespace

void add_convert_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("convert", "Turn a release's folder into a container");
    set_help(*command, kAbout, kFooter);
    command->add_option("source", arguments->options.source, "Folder of the release")
        ->required()
        ->type_name("SRC");
    command
        ->add_option("destination", arguments->options.destination,
                     "The container, a folder that may not exist yet")
        ->required()
        ->type_name("DST");
    command->add_option("--trunk", arguments->trunk, "Format of everything but the experts")
        ->check(CLI::IsMember({"q4", "q4pure", "q8", "bf16", "f32"}))
        ->capture_default_str();
    command
        ->add_option("--experts", arguments->experts,
                     "Format of the experts; auto: mxfp4 if released so (without loss), else q4")
        ->check(CLI::IsMember({"auto", "mxfp4", "q8", "q4", "bf16", "f32"}))
        ->capture_default_str();
    command->add_option("-j,--threads", arguments->options.threads, "Threads to encode with")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_flag("-q,--quiet", arguments->quiet, "Print nothing but errors");
    command->callback([arguments, &action] { action = [arguments] { return convert(*arguments); }; });
}

}  // namespace waste::tools
