// waste synth: a container of random weights, for measurements without a release.
#include "engine/synth/synth.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <optional>
#include <vector>

#include "container/file.h"
#include "engine/synth/presets.h"
#include "kernels/format.h"
#include "tools/command.h"
#include "tools/describe.h"
#include "tools/help.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

constexpr const char* kAbout =
    "Writes a container of random weights in any shape, to measure speed and memory without a release.\n"
    "SHAPE is a config.json, or one of these:\n"
    "  k3       Kimi K3's own: 93 layers, 896 experts a layer; 1.48 TB, or 41 GB with --unique-experts 2\n"
    "  k3mini   Kimi K3's features at hidden size 2048: 24 layers, 256 experts a layer; 10.6 GB\n"
    "  klmini   Kimi-Linear's features at the same size; 10.4 GB\n"
    "  demo     K3's features at hidden size 256; 25 MB\n"
    "Activations and logits are ordinary, the text is noise. There is no tokenizer: run it with --ids.\n"
    "\n"
    "--skew makes experts unequally popular, after Zipf: the r-th most popular of a layer is chosen by a\n"
    "share of the tokens that is proportional to r^-SKEW, and at most 1. With 0 all are alike.\n"
    "--unique-experts stores N experts a layer, which all share: the router sees the whole model, the drive\n"
    "and the page cache a smaller one.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste synth k3mini /tmp/k3mini.waste\n"
    "  waste synth klmini /tmp/kl.waste --trunk q8 --experts q4 --skew 0.8\n"
    "  waste synth k3 /mnt/k3.waste --unique-experts 16   # 1/56 of the experts' bytes\n"
    "  waste synth ~/Kimi-Linear/config.json /mnt/kl.waste\n"
    "  echo 1,2,3 | waste run /tmp/k3mini.waste --ids -\n"
    "Exit codes: 0 done, 1 failed, 2 wrong usage, 130 interrupted (nothing is left behind).";

constexpr uint64_t kMaxConfigBytes = 16 << 20;

struct Arguments {
    engine::SynthOptions options;
    std::string shape;
    std::string trunk = "q4";
    std::string experts = "mxfp4";
    int64_t unique_experts = 0;
    bool quiet = false;
};

void print_summary(const Arguments& arguments, const engine::SynthSummary& s) {
    const std::string stored = s.stored_experts == s.config.num_experts
                                   ? ""
                                   : fmt::format(", {} of {} stored", s.stored_experts, s.config.num_experts);
    put_err(fmt::format("{} features: {}\n", family_name(s.config.family), layers_text(s.config)));
    put_err(fmt::format("Writing {}: trunk {} ({}), experts {} ({}{}); {} free there\n",
                        printable(arguments.options.destination), arguments.trunk, bytes_text(s.trunk_bytes),
                        arguments.experts, bytes_text(s.expert_bytes), stored, bytes_text(s.free_bytes)));
}

/// A word that can only be meant as a preset's name.
bool is_word(const std::string& shape) {
    return shape.find_first_of("./") == std::string::npos && !container::is_file(shape);
}

int synth(Arguments& arguments) {
    engine::SynthOptions& options = arguments.options;
    if (const auto preset = engine::synth_preset_config(arguments.shape)) {
        options.config_text = *preset;
        options.config_place = "preset " + arguments.shape;
    } else if (is_word(arguments.shape)) {
        std::vector<std::string_view> names;
        for (const engine::SynthPreset& known : engine::synth_presets()) names.push_back(known.name);
        warn(fmt::format("'{}' is neither a file nor one of the presets ({})", printable(arguments.shape),
                         fmt::join(names, ", ")));
        return kUsage;
    } else {
        auto text = container::read_text_file(arguments.shape, kMaxConfigBytes);
        if (!text) return report(text.error());
        options.config_text = std::move(*text);
        options.config_place = arguments.shape;
    }
    options.trunk = *engine::trunk_recipe_from_name(arguments.trunk);
    options.experts = *kernels::format_from_name(arguments.experts);
    catch_interrupts();
    ProgressLine progress("B");
    engine::SynthCallbacks callbacks;
    callbacks.on_start = [&](const engine::SynthSummary& summary) {
        if (!arguments.quiet) print_summary(arguments, summary);
    };
    callbacks.on_progress = [&](const engine::ConvertProgress& p) {
        if (!arguments.quiet) progress.update(p.bytes_done, p.bytes_total, 0, p.what);
        return !interrupted();
    };
    const auto fingerprint = engine::synthesize(options, callbacks);
    progress.finish();
    if (!fingerprint) return report(fingerprint.error());
    if (!arguments.quiet) {
        put_err(fmt::format("Done: {}, fingerprint {}; no tokenizer, so prompts are given with --ids\n",
                            printable(options.destination), *fingerprint));
    }
    return kOk;
}

}  // namespace

void add_synth_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("synth", "Write a container of random weights, to measure with");
    set_help(*command, kAbout, kFooter);
    command->add_option("shape", arguments->shape, "A config.json, or k3, k3mini, klmini, demo")
        ->required()
        ->type_name("SHAPE");
    command
        ->add_option("destination", arguments->options.destination,
                     "The container, a folder that does not exist yet")
        ->required()
        ->type_name("OUT");
    command->add_option("--trunk", arguments->trunk, "Format of everything but the experts")
        ->check(CLI::IsMember({"q4", "q4pure", "q8", "bf16", "f32"}))
        ->capture_default_str();
    command->add_option("--experts", arguments->experts, "Format of the experts")
        ->check(CLI::IsMember({"mxfp4", "q8", "q4", "bf16", "f32"}))
        ->capture_default_str();
    command->add_option("--seed", arguments->options.seed, "The same seed gives the same bytes")
        ->capture_default_str();
    command->add_option("--skew", arguments->options.skew, "How unequally popular experts are, 0 to 10")
        ->check(CLI::Range(0.0, engine::kMaxSynthSkew))
        ->capture_default_str();
    command
        ->add_option("--unique-experts", arguments->unique_experts,
                     "Store N experts a layer, shared by all; without it each has its own")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20));
    command->add_flag("--force", arguments->options.replace, "Replace a synthetic container at OUT");
    command->add_option("-j,--threads", arguments->options.threads, "Threads to write with")
        ->check(CLI::Range(1, 1024))
        ->capture_default_str();
    command->add_flag("-q,--quiet", arguments->quiet, "Print nothing but errors");
    command->callback([arguments, &action] {
        action = [arguments] {
            if (arguments->unique_experts > 0) arguments->options.unique_experts = arguments->unique_experts;
            return synth(*arguments);
        };
    });
}

}  // namespace waste::tools
