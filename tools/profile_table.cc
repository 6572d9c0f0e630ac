#include "tools/profile_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

namespace waste::tools {
namespace {

struct Line {
    std::string_view name;
    double milliseconds;
};

std::vector<Line> lines_of(const engine::Profile& profile, int64_t tokens) {
    std::vector<Line> lines;
    for (size_t i = 0; i < engine::kComponents; i++) {
        const auto nanoseconds = static_cast<double>(profile.nanoseconds[i]);
        if (nanoseconds <= 0 || tokens <= 0) continue;
        lines.push_back({engine::component_name(static_cast<engine::Component>(i)),
                         nanoseconds * 1e-6 / static_cast<double>(tokens)});
    }
    return lines;
}

}  // namespace

std::string profile_table(const engine::Profile& profile, int64_t tokens) {
    std::vector<Line> lines = lines_of(profile, tokens);
    std::sort(lines.begin(), lines.end(),
              [](const Line& a, const Line& b) { return a.milliseconds > b.milliseconds; });
    double total = 0;
    for (const Line& line : lines) total += line.milliseconds;
    std::string out;
    for (const Line& line : lines) {
        out += fmt::format("    {:<16} {:>9.3f} ms/token {:>5.1f} %\n", line.name, line.milliseconds,
                           100 * line.milliseconds / total);
    }
    return out;
}

nlohmann::ordered_json profile_json(const engine::Profile& profile, int64_t tokens) {
    nlohmann::ordered_json json;
    for (const Line& line : lines_of(profile, tokens)) json[std::string(line.name)] = line.milliseconds;
    return json;
}

}  // namespace waste::tools
