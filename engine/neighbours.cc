#include "engine/neighbours.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <string_view>

#include "container/machine.h"
#include "engine/saturate.h"

namespace waste::engine {
namespace {

constexpr std::string_view kKey = "budget ";

std::optional<uint64_t> parse_budget(std::string_view content) {
    if (!content.starts_with(kKey) || !content.ends_with('\n')) return std::nullopt;
    content.remove_prefix(kKey.size());
    uint64_t bytes = 0;
    const char* last = content.data() + content.size() - 1;
    const auto [end, error] = std::from_chars(content.data(), last, bytes);
    return error == std::errc() && end == last ? std::optional(bytes) : std::nullopt;
}

std::vector<Neighbour> parse_entries(std::span<const container::LiveEntry> entries) {
    std::vector<Neighbour> out;
    for (const container::LiveEntry& entry : entries) {
        const auto budget = parse_budget(entry.content);
        if (!budget) continue;
        const uint64_t taken = container::read_taken_bytes("", entry.pid);
        out.push_back({entry.pid, *budget, std::min(taken, *budget)});
    }
    return out;
}

}  // namespace

Result<std::vector<Neighbour>> other_engines(const std::string& directory) {
    const auto entries = container::list_live_files(directory);
    if (!entries) return pass(entries);
    return parse_entries(*entries);
}

Result<BudgetEntry> BudgetEntry::enter(const std::string& directory, const Decide& decide) {
    auto file = container::LiveFile::enter(
        directory, [&](std::span<const container::LiveEntry> entries) -> Result<std::string> {
            const auto budget = decide(parse_entries(entries));
            if (!budget) return pass(budget);
            return fmt::format("{}{}\n", kKey, *budget);
        });
    if (!file) return pass(file);
    return BudgetEntry(std::move(*file));
}

Result<MemoryFacts> read_memory_facts(const std::string& root, std::span<const Neighbour> others) {
    const auto machine = container::read_machine_memory(root);
    if (!machine) return pass(machine);
    const auto now = container::read_memory_now(root);
    if (!now) return pass(now);
    MemoryFacts facts{machine->usable_bytes, now->available_bytes};
    for (const Neighbour& other : others) {
        facts.neighbour_bytes = add(facts.neighbour_bytes, other.budget_bytes);
        facts.neighbour_untaken_bytes =
            add(facts.neighbour_untaken_bytes, subtract(other.budget_bytes, other.taken_bytes));
    }
    return facts;
}

}  // namespace waste::engine
