// waste verify: every checksum of a container, and the proof that it is what its release encodes to.
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "container/reader.h"
#include "engine/convert/proof.h"
#include "engine/convert/source.h"
#include "tools/command.h"
#include "tools/describe.h"
#include "tools/help.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using container::Damage;
using engine::ProofReport;
using nlohmann::json;

constexpr const char* kAbout =
    "Reads every byte of a container and compares every checksum. What is damaged is named: a tensor, an\n"
    "expert, a file.\n"
    "With --source the conversion itself is proven too: the release is encoded again and compared byte for "
    "byte,\n"
    "a few layers of each kind and a few experts of each bank, or everything with --all.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste verify ~/k3.waste\n"
    "  waste verify ~/k3.waste --source ~/Kimi-K3 --samples 4\n"
    "  waste verify ~/k3.waste --source ~/Kimi-K3 --all --json\n"
    "Exit codes: 0 everything is as it should be, 1 damaged, differs or cannot be read, 130 interrupted.";

struct Arguments {
    std::string model;
    engine::ProofOptions proof;
    bool as_json = false;
    bool quiet = false;
};

/// A progress callback over bytes for a person who waits.
std::function<bool(uint64_t, uint64_t)> shown(ProgressLine& line, bool quiet, const char* what) {
    return [&line, quiet, what](uint64_t done, uint64_t total) {
        if (!quiet) line.update(done, total, 0, what);
        return !interrupted();
    };
}

json damage_json(const std::vector<Damage>& damage) {
    json out = json::array();
    for (const Damage& item : damage) out.push_back({{"what", item.what}, {"message", item.message}});
    return out;
}

void print_damage(const std::vector<Damage>& damage) {
    for (const Damage& item : damage) {
        put_out(fmt::format("{}: {}\n", printable(item.what), printable(item.message)));
    }
}

void print_text(const Arguments& arguments, const container::Manifest& manifest,
                const std::vector<Damage>& damage, const std::optional<ProofReport>& proof) {
    print_damage(damage);
    if (damage.empty()) {
        put_out(fmt::format("{}: every checksum matches, fingerprint {}\n", printable(arguments.model),
                            manifest.fingerprint));
    } else {
        put_out(fmt::format("{}: {} damaged; copy or convert it again\n", printable(arguments.model),
                            damage.size()));
    }
    if (!proof) return;
    print_damage(proof->differences);
    const std::string compared =
        arguments.proof.all
            ? fmt::format("all {} tensors and {} experts", proof->tensors, proof->experts)
            : fmt::format("{} tensors (layers {}) and {} experts, chosen with --seed {}", proof->tensors,
                          fmt::join(proof->layers, ", "), proof->experts, arguments.proof.seed);
    put_out(fmt::format("{}: encoded again and compared: {}, {}; {}\n", printable(arguments.proof.source),
                        compared, bytes_text(proof->bytes),
                        proof->differences.empty() ? std::string("the same bytes")
                                                   : fmt::format("{} differ", proof->differences.size())));
}

void print_json(const Arguments& arguments, const container::Manifest& manifest,
                const std::vector<Damage>& damage, const std::optional<ProofReport>& proof) {
    json out = {{"container", arguments.model},
                {"ok", damage.empty() && (!proof || proof->differences.empty())},
                {"fingerprint", manifest.fingerprint},
                {"damage", damage_json(damage)}};
    if (proof) {
        out["source"] = {{"directory", arguments.proof.source},
                         {"all", arguments.proof.all},
                         {"seed", arguments.proof.seed},
                         {"layers", proof->layers},
                         {"tensors", proof->tensors},
                         {"experts", proof->experts},
                         {"bytes", proof->bytes},
                         {"differences", damage_json(proof->differences)}};
    }
    put_out(fmt::format("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace)));
}

/// An error that ends the command, also told to a program that waits for JSON.
int refuse(const Arguments& arguments, const Error& error) {
    if (arguments.as_json) {
        const json out = {{"container", arguments.model}, {"ok", false}, {"error", error.text()}};
        put_out(fmt::format("{}\n", out.dump(2, ' ', false, json::error_handler_t::replace)));
    }
    return report(error);
}

int verify(const Arguments& arguments) {
    const auto container = container::Container::open(arguments.model);
    if (!container) return refuse(arguments, container.error());
    if (!arguments.proof.source.empty()) {
        // Hours of checksums should not end in a misspelt folder.
        const auto source = engine::Source::open(arguments.proof.source);
        if (!source) return refuse(arguments, source.error());
    }
    catch_interrupts();
    ProgressLine line("B");
    const auto damage = container->verify(shown(line, arguments.quiet, "checksums"));
    line.finish();
    if (!damage) return refuse(arguments, damage.error());
    std::optional<ProofReport> proof;
    if (!arguments.proof.source.empty()) {
        ProgressLine proof_line("B");
        auto proven = engine::prove_conversion(*container, arguments.proof,
                                               shown(proof_line, arguments.quiet, "encoded and compared"));
        proof_line.finish();
        if (!proven) {
            if (!arguments.as_json) print_damage(*damage);
            return refuse(arguments, proven.error());
        }
        proof = std::move(*proven);
    }
    (arguments.as_json ? print_json : print_text)(arguments, container->manifest(), *damage, proof);
    return damage->empty() && (!proof || proof->differences.empty()) ? kOk : kFailed;
}

}  // namespace

void add_verify_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("verify", "Check every byte of a container");
    set_help(*command, kAbout, kFooter);
    command->add_option("model", arguments->model, "Container made by `waste convert`")
        ->required()
        ->type_name("MODEL");
    CLI::Option* source = command->add_option("--source", arguments->proof.source,
                                              "The release it was made from: prove the conversion");
    source->type_name("SRC");
    CLI::Option* all = command->add_flag("--all", arguments->proof.all, "Compare everything with the release")
                           ->needs(source);
    command
        ->add_option("--samples", arguments->proof.samples,
                     "Compare this many layers of each kind and experts of each bank")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
        ->needs(source)
        ->excludes(all)
        ->capture_default_str();
    command->add_option("--seed", arguments->proof.seed, "Chooses the samples")
        ->needs(source)
        ->excludes(all)
        ->capture_default_str();
    command->add_option("-j,--threads", arguments->proof.threads, "Threads to encode with")
        ->check(CLI::Range(1, 1024))
        ->needs(source)
        ->capture_default_str();
    command->add_flag("--json", arguments->as_json, "Print JSON");
    command->add_flag("-q,--quiet", arguments->quiet, "No progress");
    command->callback([arguments, &action] { action = [arguments] { return verify(*arguments); }; });
}

}  // namespace waste::tools
