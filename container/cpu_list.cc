#include "container/cpu_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "container/text.h"

namespace waste::container {
namespace {

constexpr int kMaxCpu = 65535;

/// The number that all of `text` is.
std::optional<int> whole_number(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && value >= 0 && value <= kMaxCpu ? std::optional(value) : std::nullopt;
}

}  // namespace

Result<std::vector<int>> parse_cpu_list(std::string_view text, const std::string& place) {
    const auto refuse = [&](const std::string& message) { return fail(ErrorKind::invalid, place, message); };
    std::vector<int> cpus;
    std::vector<bool> seen(kMaxCpu + 1, false);
    for (bool last = false; !last;) {
        const size_t comma = text.find(',');
        last = comma == text.npos;
        const std::string_view item = text.substr(0, comma);
        text.remove_prefix(last ? text.size() : comma + 1);
        const size_t dash = item.find('-');
        const auto first = whole_number(item.substr(0, dash));
        const auto end = dash == item.npos ? first : whole_number(item.substr(dash + 1));
        if (!first || !end) {
            return refuse(fmt::format("'{}' is not a CPU or a range of them; a list looks like 0-3,8,10-11",
                                      printable(item)));
        }
        if (*end < *first) return refuse(fmt::format("the range {} runs backwards", item));
        for (int cpu = *first; cpu <= *end; cpu++) {
            if (seen[static_cast<size_t>(cpu)]) return refuse(fmt::format("CPU {} is named twice", cpu));
            seen[static_cast<size_t>(cpu)] = true;
            cpus.push_back(cpu);
        }
    }
    return cpus;
}

std::string cpu_list_text(std::span<const int> cpus) {
    std::string text;
    for (size_t begin = 0, end; begin < cpus.size(); begin = end) {
        end = begin + 1;
        while (end < cpus.size() && cpus[end] == cpus[end - 1] + 1) end++;
        if (!text.empty()) text += ',';
        text += fmt::format("{}", cpus[begin]);
        if (end - begin > 1) text += fmt::format("-{}", cpus[end - 1]);
    }
    return text;
}

}  // namespace waste::container
