// waste bench: how fast a model runs on this machine, and how near to its limits.
#include "engine/bench.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "tools/command.h"
#include "tools/help.h"
#include "tools/model_options.h"
#include "tools/profile_table.h"
#include "tools/stream_report.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using engine::BenchResult;
using engine::BenchRow;

constexpr const char* kAbout =
    "Measures how fast a model reads prompts and generates tokens here, next to the time that its bytes take "
    "at\n"
    "this machine's memory rate (measured in the same run). Token ids are arbitrary and the same each time; "
    "the\n"
    "hash of the last logits shows that two runs did the same work. Close other programs first.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste bench k3mini.waste\n"
    "  waste bench kl.waste --prompt 128,2048 --decode 64 --profile\n"
    "  waste bench kl.waste --sweep\n"
    "  waste bench kl.waste --cpus 0-7 --json > eight.json\n"
    "  waste bench drive /mnt/models";

struct Arguments {
    ModelArguments model;
    engine::BenchOptions bench;
    bool sweep = false;
    bool json = false;
    bool quiet = false;
};

double milliseconds(double seconds) {
    return 1e3 * seconds;
}

void print_row(const engine::Model& model, const char* what, const BenchRow& row) {
    const auto [least, most] = std::minmax_element(row.seconds.begin(), row.seconds.end());
    const auto tokens = static_cast<double>(row.tokens);
    put_out(fmt::format("{:<22} {:>9.2f} tok/s   {:>9.3f} ms/token ({:.3f} to {:.3f}, {} times)\n", what,
                        row.tokens_per_second(), milliseconds(row.median_seconds()) / tokens,
                        milliseconds(*least) / tokens, milliseconds(*most) / tokens, row.seconds.size()));
    put_out(stream_text(model, row.stream, row.all_tokens(), row.all_seconds()));
    put_out(profile_table(row.profile, row.all_tokens()));
}

void print_text(const Arguments& arguments, const engine::Model& model, const engine::Session& session,
                const BenchResult& result) {
    put_out(fmt::format("{}: tier {}, {} threads, {}, blocks of {}\n", printable(arguments.model.model),
                        kernels::tier_name(session.executor().tier()), session.executor().threads(),
                        arguments.model.compute, arguments.model.block_tokens));
    for (const BenchRow& row : result.prompts) {
        print_row(model, fmt::format("prompt of {}", row.tokens).c_str(), row);
        const double rate = static_cast<double>(result.prompt_multiply_adds) * row.tokens_per_second();
        put_out(fmt::format("{:<22} {:>9.1f} G multiply-adds/s in matrices\n", "", rate * 1e-9));
    }
    if (result.decode.tokens > 0) {
        print_row(model, fmt::format("token after {}", result.decode.position).c_str(), result.decode);
        put_out(fmt::format("{:<22} {:>9.1f} MB a token: {:.0f} % of the memory rate of {:.1f} GB/s\n", "",
                            static_cast<double>(result.decode_bytes) * 1e-6,
                            100 * result.decode_share_of_memory_rate(),
                            result.memory_bytes_per_second * 1e-9));
    }
    put_out(fmt::format("logits {:016x}\n", result.logits_hash));
}

nlohmann::ordered_json row_json(const engine::Model& model, const BenchRow& row, bool profiled) {
    nlohmann::ordered_json json;
    json["position"] = row.position;
    json["tokens"] = row.tokens;
    json["tokens_per_second"] = row.tokens_per_second();
    json["seconds"] = row.seconds;
    if (model.experts().streams() || model.trunk().streams()) {
        json["stream"] = stream_json(model, row.stream, row.all_tokens(), row.all_seconds());
    }
    if (profiled) {
        json["profile_ms_per_token"] = profile_json(row.profile, row.all_tokens());
    }
    return json;
}

nlohmann::ordered_json result_json(const Arguments& arguments, const engine::Model& model,
                                   const engine::Session& session, const BenchResult& result) {
    nlohmann::ordered_json json;
    json["model"] = printable(arguments.model.model);
    json["tier"] = kernels::tier_name(session.executor().tier());
    json["threads"] = session.executor().threads();
    json["compute"] = arguments.model.compute;
    json["block"] = arguments.model.block_tokens;
    json["memory_bytes_per_second"] = result.memory_bytes_per_second;
    json["prompt_multiply_adds_per_token"] = result.prompt_multiply_adds;
    json["prompts"] = nlohmann::ordered_json::array();
    for (const BenchRow& row : result.prompts) {
        json["prompts"].push_back(row_json(model, row, arguments.bench.profile));
    }
    if (result.decode.tokens > 0) {
        json["decode"] = row_json(model, result.decode, arguments.bench.profile);
        json["decode"]["bytes_per_token"] = result.decode_bytes;
        json["decode"]["share_of_memory_rate"] = result.decode_share_of_memory_rate();
    }
    json["logits_hash"] = fmt::format("{:016x}", result.logits_hash);
    return json;
}

/// 1, 2, 4, … and the default number itself.
std::vector<int> thread_counts() {
    const int most = engine::choose_placement(0).threads;
    std::vector<int> counts;
    for (int threads = 1; threads < most; threads *= 2) counts.push_back(threads);
    counts.push_back(most);
    return counts;
}

/// One line of the table, or one element of the JSON array.
Result<nlohmann::ordered_json> bench_once(engine::Model& model, const Arguments& arguments) {
    int64_t longest = 0;
    for (const int64_t length : arguments.bench.prompt_lengths) longest = std::max(longest, length);
    auto options = session_options(arguments.model, longest + arguments.bench.decode_tokens);
    if (!options) return pass(options);
    const auto held = hold_model(model, arguments.model.memory, *options);
    if (!held) return pass(held);
    auto session = engine::Session::create(model, *options);
    if (!session) return pass(session);
    const bool show = !arguments.quiet && stderr_is_terminal();
    // Within the budget: what the experts take later is free until then.
    auto bench = arguments.bench;
    bench.memory_rate_bytes = std::min(bench.memory_rate_bytes, held->plan.budget_bytes / 2);
    const auto result = engine::run_bench(model, *session, bench, [&](const std::string& what) {
        if (show) put_err(fmt::format("\r\x1b[K{}", what));
        return !interrupted();
    });
    if (show) put_err("\r\x1b[K");
    if (!result) return pass(result);
    if (!arguments.json) print_text(arguments, model, *session, *result);
    return result_json(arguments, model, *session, *result);
}

int bench(Arguments& arguments) {
    auto model = engine::Model::open(arguments.model.model);
    if (!model) return report(model.error());
    catch_interrupts();
    nlohmann::ordered_json all = nlohmann::ordered_json::array();
    for (const int threads : arguments.sweep ? thread_counts() : std::vector{arguments.model.threads}) {
        arguments.model.threads = threads;
        auto json = bench_once(*model, arguments);
        if (!json) return report(json.error());
        all.push_back(std::move(*json));
    }
    if (arguments.json) {
        const nlohmann::ordered_json& shown = arguments.sweep ? all : all.front();
        put_out(shown.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
    }
    return kOk;
}

}  // namespace

void add_bench_command(CLI::App& app, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    CLI::App* command = app.add_subcommand("bench", "How fast a model runs here, and how near to the limit");
    set_help(*command, kAbout, kFooter);
    add_model_options(*command, arguments->model);
    command
        ->add_option("--prompt", arguments->bench.prompt_lengths, "Lengths of prompts, separated by commas")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 26))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str()
        ->type_name("N,...");
    command->add_option("-n,--decode", arguments->bench.decode_tokens, "Single tokens after the last prompt")
        ->check(CLI::Range(int64_t{0}, int64_t{1} << 26))
        ->capture_default_str();
    command->add_option("--repeat", arguments->bench.repeats, "Times each prompt is run; the median counts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_flag("--sweep", arguments->sweep, "Once for 1, 2, 4, … threads; with --json an array")
        ->excludes("--threads")
        ->excludes("--cpus");
    command->add_flag("--profile", arguments->bench.profile, "Say where the time goes");
    command->add_flag("--json", arguments->json, "Print JSON");
    command->add_flag("-q,--quiet", arguments->quiet, "No progress");
    // A model that the parser requires would be whatever word comes first, `drive` too.
    CLI::Option* model = command->get_option("model")->required(false);
    const CLI::App* drive = add_bench_drive_command(*command, action);
    command->callback([arguments, drive, model, &action] {
        if (drive->count() > 0 && model->count() > 0)
            throw CLI::ExcludesError(drive->get_name(), model->get_name());
        if (drive->count() > 0) return;
        if (arguments->model.model.empty()) throw CLI::RequiredError(model->get_name());
        action = [arguments] { return bench(*arguments); };
    });
}

}  // namespace waste::tools
