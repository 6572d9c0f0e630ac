#include "tools/stream_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/terminal.h"

namespace waste::tools {
namespace {

double ratio(double part, double whole) {
    return whole > 0 ? part / whole : 0;
}
double ratio(uint64_t part, uint64_t whole) {
    return ratio(static_cast<double>(part), static_cast<double>(whole));
}
double milliseconds(uint64_t nanoseconds) {
    return static_cast<double>(nanoseconds) * 1e-6;
}

bool streams(const engine::Model& model) {
    return model.experts().streams() || model.trunk().streams();
}

}  // namespace

std::string stream_text(const engine::Model& model, const engine::StreamCounters& counters, int64_t tokens,
                        double seconds) {
    if (!streams(model) || tokens == 0) return {};
    const engine::ExpertCounters& e = counters.experts;
    const auto count = static_cast<double>(tokens);
    const double busy = static_cast<double>(counters.drive.busy_nanoseconds) * 1e-9;
    std::string out;
    if (e.uses > 0) {
        out +=
            fmt::format("experts: {:.1f} a token; {:.1f} % in memory, {:.1f} % on their way, {:.1f} % read\n",
                        static_cast<double>(e.uses) / count, 100 * ratio(e.hits, e.uses),
                        100 * ratio(e.joined, e.uses), 100 * ratio(e.misses, e.uses));
    }
    out +=
        fmt::format("drive: {} a token, {}/s while it read, busy {:.0f} % of the time\n",
                    bytes_text(static_cast<uint64_t>(static_cast<double>(counters.drive.bytes) / count)),
                    bytes_text(static_cast<uint64_t>(ratio(static_cast<double>(counters.drive.bytes), busy))),
                    100 * ratio(busy, seconds));
    out += fmt::format("waited for it: {:.1f} ms a token for experts, {:.1f} ms for the trunk\n",
                       milliseconds(e.wait_nanoseconds) / count,
                       milliseconds(counters.trunk_wait_nanoseconds) / count);
    if (e.ahead_reads > 0) {
        out += fmt::format("look-ahead: {:.0f} % of the reads, {:.0f} % of them were chosen\n",
                           100 * ratio(e.ahead_reads, e.misses + e.ahead_reads),
                           100 * ratio(e.ahead_used, e.ahead_reads));
    }
    return out;
}

std::string layers_text(const engine::Model& model, int64_t tokens) {
    if (!model.experts().streams() || tokens == 0) return {};
    std::string out = fmt::format("{:>5} {:>9} {:>7} {:>9} {:>10} {:>9} {:>9}\n", "layer", "experts",
                                  "in mem.", "MB/token", "waited ms", "ahead", "chosen");
    const auto& banks = model.container().manifest().banks;
    const auto count = static_cast<double>(tokens);
    for (size_t bank = 0; bank < banks.size(); bank++) {
        const engine::ExpertCounters e = model.experts().counters(bank);
        out += fmt::format(
            "{:>5} {:>9.1f} {:>5.1f} % {:>9.1f} {:>10.2f} {:>7.1f} % {:>7.1f} %\n", banks[bank].layer,
            static_cast<double>(e.uses) / count, 100 * ratio(e.hits, e.uses),
            static_cast<double>(e.bytes) * 1e-6 / count, milliseconds(e.wait_nanoseconds) / count,
            100 * ratio(e.ahead_reads, e.misses + e.ahead_reads), 100 * ratio(e.ahead_used, e.ahead_reads));
    }
    return out;
}

nlohmann::ordered_json stream_json(const engine::Model& model, const engine::StreamCounters& counters,
                                   int64_t tokens, double seconds) {
    const engine::ExpertCounters& e = counters.experts;
    const double busy = static_cast<double>(counters.drive.busy_nanoseconds) * 1e-9;
    nlohmann::ordered_json json;
    json["trunk"] = model.trunk().description();
    json["experts"] = model.experts().description();
    json["tokens"] = tokens;
    json["uses"] = e.uses;
    json["hits"] = e.hits;
    json["joined"] = e.joined;
    json["misses"] = e.misses;
    json["look_ahead_reads"] = e.ahead_reads;
    json["look_ahead_used"] = e.ahead_used;
    json["expert_bytes"] = e.bytes;
    json["drive_bytes"] = counters.drive.bytes;
    json["drive_busy_seconds"] = busy;
    json["drive_bytes_per_second"] = ratio(static_cast<double>(counters.drive.bytes), busy);
    json["drive_utilisation"] = ratio(busy, seconds);
    json["expert_wait_seconds"] = static_cast<double>(e.wait_nanoseconds) * 1e-9;
    json["trunk_wait_seconds"] = static_cast<double>(counters.trunk_wait_nanoseconds) * 1e-9;
    return json;
}

}  // namespace waste::tools
