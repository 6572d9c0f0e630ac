#include "tests/bench/table.h"

#include <fmt/format.h>

namespace waste::bench {
namespace {

using Run = benchmark::BenchmarkReporter::Run;

/// Seconds of one unit, with a unit that keeps the figure readable.
std::string time_text(double seconds) {
    if (seconds < 1e-6) return fmt::format("{:.3f} ns", seconds * 1e9);
    if (seconds < 1e-3) return fmt::format("{:.3f} us", seconds * 1e6);
    return fmt::format("{:.3f} ms", seconds * 1e3);
}

double seconds_of(const Run& run) {
    const bool by_clock = run.run_name.time_type == "real_time";
    return (by_clock ? run.GetAdjustedRealTime() : run.GetAdjustedCPUTime()) /
           benchmark::GetTimeUnitMultiplier(run.time_unit);
}

std::string rate_text(const Run& run) {
    for (const char* unit : {"GB/s", "Gmac/s"}) {
        if (const auto found = run.counters.find(unit); found != run.counters.end()) {
            return fmt::format("{:.1f} {}", found->second.value, unit);
        }
    }
    return "";
}

std::string share_text(const Run& run) {
    const auto found = run.counters.find("of_limit");
    return found == run.counters.end() ? "-" : fmt::format("{:.2f}", found->second.value);
}

}  // namespace

bool Table::ReportContext(const Context& context) {
    name_width_ = context.name_field_width;
    GetOutputStream() << heading_
                      << fmt::format("{:<{}}  {:>12}  {:>14}  {:>8}\n", "row", name_width_, "time", "rate",
                                     "of_limit");
    return true;
}

void Table::ReportRuns(const std::vector<Run>& runs) {
    for (const Run& run : runs) {
        std::string name = run.run_name.function_name;
        if (!run.aggregate_name.empty()) name += " " + run.aggregate_name;
        // A coefficient of variation is no time.
        if (run.aggregate_unit == benchmark::kPercentage) continue;
        GetOutputStream() << fmt::format("{:<{}}  {:>12}  {:>14}  {:>8}\n", name, name_width_,
                                         time_text(seconds_of(run)), rate_text(run), share_text(run));
    }
    GetOutputStream().flush();
}

}  // namespace waste::bench
