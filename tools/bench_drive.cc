// waste bench drive: how fast a drive gives records of an expert's size.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "container/drive_rate.h"
#include "container/file.h"
#include "container/known_drives.h"
#include "container/manifest.h"
#include "container/reader.h"
#include "tools/command.h"
#include "tools/help.h"
#include "tools/terminal.h"

namespace waste::tools {
namespace {

using container::DriveFacts;
using container::DriveRate;
using container::DriveRateRow;

constexpr const char* kAbout =
    "Measures how fast a drive gives records read at random places, past the page cache: what experts that\n"
    "are not in memory cost. Of a model it reads the experts themselves. Under any other directory it "
    "writes\n"
    "a file of random bytes, reads that, and leaves nothing behind; where the drive, or a virtual drive's\n"
    "host, has a cache larger than the file, the figures are the cache's. Other programs' use of the drive\n"
    "shows in the figures. The fastest is kept in ~/.cache/waste/drives.json for later plans and runs.";

constexpr const char* kFooter =
    "Examples:\n"
    "  waste bench drive K3.waste\n"
    "  waste bench drive /mnt/models\n"
    "  waste bench drive . --size 3M,12M --depth 4,8,16,32\n"
    "  waste bench drive /mnt/models --json > drive.json";

// Runs that differ by more than this say little.
constexpr double kMostSpread = 0.1;

struct Arguments {
    std::string directory;
    container::DriveRateOptions options;
    bool own_sizes = false;          ///< the sizes are the user's
    std::vector<std::string> banks;  ///< of a model: read instead of a file of our own
    bool json = false;
    bool quiet = false;
};

std::string record_text(uint64_t bytes) {
    constexpr uint64_t kMib = uint64_t{1} << 20;
    return bytes % kMib == 0 ? fmt::format("{} MiB", bytes / kMib) : fmt::format("{} KiB", bytes >> 10);
}

std::string rate_text(double bytes_per_second) {
    return fmt::format("{:.2f} GB/s", bytes_per_second * 1e-9);
}

std::string facts_text(const DriveFacts& facts) {
    std::string text = fmt::format("{} on {}", facts.file_system, facts.name);
    if (!facts.model.empty()) text += fmt::format(" ({})", facts.model);
    text += fmt::format(", device {}, mounted at {}", facts.device_text(), facts.mount_point);
    if (!facts.link.empty()) text += ", " + facts.link;
    if (facts.rotational.value_or(false)) text += ", rotational, says the system";
    return printable(text);
}

void print_text(const Arguments& arguments, const DriveRate& rate) {
    put_out(fmt::format("{}: {}\n", printable(arguments.directory), facts_text(rate.facts)));
    put_out(printable(rate.description) + "\n");
    put_out(rate.write_bytes_per_second > 0
                ? fmt::format("written at {}\n\n", rate_text(rate.write_bytes_per_second))
                : fmt::format("{} of experts\n\n", bytes_text(rate.file_bytes)));
    put_out(fmt::format("{:>10} {:>6} {:>8} {:>16} {:>11} {:>11}\n", "record", "depth", "GB/s", "from - to",
                        "median", "p99"));
    for (const DriveRateRow& row : rate.rows) {
        const auto [least, most] =
            std::minmax_element(row.bytes_per_second.begin(), row.bytes_per_second.end());
        put_out(fmt::format("{:>10} {:>6} {:>8.2f} {:>16} {:>8.2f} ms {:>8.2f} ms\n",
                            record_text(row.record_bytes), row.depth, row.rate() * 1e-9,
                            fmt::format("{:.2f} - {:.2f}", *least * 1e-9, *most * 1e-9),
                            1e3 * row.median_seconds, 1e3 * row.p99_seconds));
    }
    const DriveRateRow& best = rate.best();
    put_out(fmt::format("\nbest: records of {} at depth {}: {}\n", record_text(best.record_bytes), best.depth,
                        rate_text(best.rate())));
}

nlohmann::ordered_json row_json(const DriveRateRow& row) {
    return {{"record_bytes", row.record_bytes}, {"depth", row.depth},
            {"bytes_per_second", row.rate()},   {"runs_bytes_per_second", row.bytes_per_second},
            {"spread", row.spread()},           {"median_seconds", row.median_seconds},
            {"p99_seconds", row.p99_seconds}};
}

void print_json(const Arguments& arguments, const DriveRate& rate) {
    const DriveFacts& facts = rate.facts;
    nlohmann::ordered_json json;
    json["directory"] = arguments.directory;
    json["drive"] = {{"device", facts.device_text()},
                     {"file_system", facts.file_system},
                     {"mount_point", facts.mount_point},
                     {"name", facts.name},
                     {"model", facts.model},
                     {"link", facts.link}};
    json["drive"]["rotational"] = facts.rotational ? nlohmann::ordered_json(*facts.rotational) : nullptr;
    json["reader"] = rate.description;
    json["direct"] = rate.direct;
    json["file_bytes"] = rate.file_bytes;
    const bool written = rate.write_bytes_per_second > 0;
    json["write_bytes_per_second"] = written ? nlohmann::ordered_json(rate.write_bytes_per_second) : nullptr;
    json["rows"] = nlohmann::ordered_json::array();
    for (const DriveRateRow& row : rate.rows) json["rows"].push_back(row_json(row));
    json["best"] = {{"record_bytes", rate.best().record_bytes},
                    {"depth", rate.best().depth},
                    {"bytes_per_second", rate.best().rate()}};
    put_out(json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

void warn_about(const DriveRate& rate) {
    if (!rate.direct) {
        warn(fmt::format(
            "these are not the drive's figures: its file system ({}) is read through the page cache or "
            "lives in memory",
            rate.facts.file_system));
    }
    const DriveRateRow& best = rate.best();
    if (best.spread() > kMostSpread) {
        warn(fmt::format(
            "the runs of the best row differ by {:.0f} %: something else uses the drive, or it slows down",
            100 * best.spread()));
    }
}

void say_what_comes(const Arguments& arguments) {
    const auto& options = arguments.options;
    const double seconds = static_cast<double>(options.record_bytes.size() * options.depths.size()) *
                           options.runs * options.seconds_each;
    const std::string place = printable(arguments.directory);
    put_err(arguments.banks.empty()
                ? fmt::format("writes {} into {}, then reads for {}\n", bytes_text(options.file_bytes), place,
                              duration_text(seconds))
                : fmt::format("reads experts of {} for {}\n", place, duration_text(seconds)));
}

/// Of a model its banks are read, in records of its experts' sizes unless the user wants others.
Result<void> find_banks(Arguments& arguments) {
    if (!container::is_container(arguments.directory)) return {};
    const auto model = container::Container::open(arguments.directory);
    if (!model) return pass(model);
    std::vector<uint64_t> sizes;
    for (const container::BankEntry& bank : model->manifest().banks) {
        arguments.banks.push_back(container::join_path(arguments.directory, bank.file));
        sizes.push_back(bank.shape.record_bytes());
    }
    if (sizes.empty()) return fail(ErrorKind::invalid, arguments.directory, "has no routed experts to read");
    std::sort(sizes.begin(), sizes.end());
    sizes.erase(std::unique(sizes.begin(), sizes.end()), sizes.end());
    if (!arguments.own_sizes) arguments.options.record_bytes = sizes;
    return {};
}

int bench_drive(Arguments& arguments) {
    if (const auto found = find_banks(arguments); !found) return report(found.error());
    catch_interrupts();
    const bool show = !arguments.quiet && stderr_is_terminal();
    bool said = arguments.quiet;
    const auto progress = [&](std::string_view what, double share) {
        // What cannot be done at all has failed by now.
        if (!std::exchange(said, true)) say_what_comes(arguments);
        if (show) put_err(fmt::format("\r\x1b[K{:3.0f} %  {}", 100 * share, what));
        return !interrupted();
    };
    const auto rate = arguments.banks.empty()
                          ? container::measure_drive_rate(arguments.directory, arguments.options, progress)
                          : container::measure_read_rate(arguments.banks, arguments.options, progress);
    if (show) put_err("\r\x1b[K");
    if (!rate) return report(rate.error());
    (arguments.json ? print_json : print_text)(arguments, *rate);
    warn_about(*rate);
    const auto kept = container::remember_drive_rate(container::known_drives_path(), *rate);
    if (!kept) warn(kept.error().text() + "; the figures are not kept for later plans and runs");
    return kOk;
}

std::string wrong_record(const std::string& text) {
    uint64_t bytes = 0;
    const bool good =
        CLI::detail::lexical_cast(text, bytes) && bytes > 0 && bytes % container::kAlignment == 0;
    return good ? std::string()
                : fmt::format("must be a multiple of {} bytes, like 512K or 12M", container::kAlignment);
}

}  // namespace

CLI::App* add_bench_drive_command(CLI::App& bench, Action& action) {
    auto arguments = std::make_shared<Arguments>();
    container::DriveRateOptions& options = arguments->options;
    CLI::App* command = bench.add_subcommand("drive", "How fast a drive gives records of an expert's size");
    set_help(*command, kAbout, kFooter);
    command->add_option("directory", arguments->directory, "A model, or a directory on the drive")
        ->required()
        ->type_name("DIR");
    const CLI::Option* size =
        command
            ->add_option(
                "--size", options.record_bytes,
                "Sizes of records, separated by commas (default: a model's experts', else 1M,4M,16M)")
            ->transform(CLI::AsSizeValue(false))
            ->check(wrong_record)
            ->delimiter(',')
            ->allow_extra_args(false)
            ->type_name("SIZE,...");
    command->add_option("--depth", options.depths, "Reads in flight, separated by commas")
        ->check(CLI::Range(1, 1024))
        ->delimiter(',')
        ->allow_extra_args(false)
        ->capture_default_str()
        ->type_name("N,...");
    command->add_option("--file-size", options.file_bytes, "Length of the file (default: 1G)")
        ->transform(CLI::AsSizeValue(false))
        ->check(wrong_record)
        ->type_name("SIZE");
    command->add_option("--repeat", options.runs, "Times each size and depth is run; the median counts")
        ->check(CLI::Range(1, 1000))
        ->capture_default_str();
    command->add_option("--seconds", options.seconds_each, "Length of a run")
        ->check(CLI::Range(0.01, 3600.0))
        ->capture_default_str();
    command->add_flag("--json", arguments->json, "Print JSON");
    command->add_flag("-q,--quiet", arguments->quiet, "No progress");
    command->callback([arguments, size, &action] {
        arguments->own_sizes = size->count() > 0;
        action = [arguments] { return bench_drive(*arguments); };
    });
    return command;
}

}  // namespace waste::tools
