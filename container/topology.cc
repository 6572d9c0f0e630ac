#include "container/topology.h"

#include <fmt/format.h>
#include <sched.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <functional>
#include <iterator>
#include <map>
#include <optional>

#include "container/cpu_list.h"
#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

// Cores this much below the best are efficient ones. Capacity is measured work a second: the middle cores of phones have
// 80 to 90 % of the fastest one's, the small ones 25 to 45 %. Frequencies of equal cores differ by up to 15 %, as each is
// rated apart.
constexpr double kCapacityShare = 0.6;
constexpr double kFrequencyShare = 0.8;

std::string content_of(const std::string& path) {
    std::string text = read_pseudo_file(path).value_or(std::string());
    text.erase(std::find(text.begin(), text.end(), '\n'), text.end());
    return text;
}

/// Ids of a list in a file, ascending; none where it cannot be read or understood.
std::vector<int> list_of(const std::string& path) {
    auto cpus = parse_cpu_list(content_of(path), path).value_or(std::vector<int>());
    std::sort(cpus.begin(), cpus.end());
    return cpus;
}

std::optional<int> number_of(std::string_view text) {
    int value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    const bool whole = error == std::errc() && end == text.data() + text.size();
    return whole && value >= 0 ? std::optional(value) : std::nullopt;
}

bool contains(std::span<const int> ascending, int id) {
    return std::binary_search(ascending.begin(), ascending.end(), id);
}

/// The lowest id of a list that `id` must be in itself.
std::optional<int> lowest_with(const std::string& path, int id) {
    const std::vector<int> cpus = list_of(path);
    return contains(cpus, id) ? std::optional(cpus.front()) : std::nullopt;
}

/// From the entry "nodeN" of the CPU's directory.
int node_of(const std::string& directory) {
    constexpr std::string_view kNode = "node";
    for (const std::string& name : list_directory(directory).value_or(std::vector<std::string>())) {
        if (!name.starts_with(kNode)) continue;
        if (const auto node = number_of(std::string_view(name).substr(kNode.size()))) return *node;
    }
    return 0;
}

Cpu read_cpu(const std::string& directory, int id) {
    const std::string topology = join_path(directory, "topology");
    const auto siblings = lowest_with(join_path(topology, "core_cpus_list"), id);
    const auto old_siblings = lowest_with(join_path(topology, "thread_siblings_list"), id);
    Cpu cpu{};
    cpu.id = id;
    cpu.core = siblings.value_or(old_siblings.value_or(id));
    cpu.package = number_of(content_of(join_path(topology, "physical_package_id"))).value_or(0);
    cpu.node = node_of(directory);
    cpu.l3_domain = lowest_with(join_path(directory, "cache/index3/shared_cpu_list"), id).value_or(-1);
    return cpu;
}

/// What needs to know the CPUs before.
void finish_cpus(std::vector<Cpu>& cpus) {
    std::map<int, int> first_of_package, threads_of_core;
    for (Cpu& cpu : cpus) {
        const int first = first_of_package.try_emplace(cpu.package, cpu.id).first->second;
        if (cpu.l3_domain < 0) cpu.l3_domain = first;
        cpu.smt_rank = threads_of_core[cpu.core]++;
    }
}

/// Marks CPUs whose number in `name` is below `share` of the largest; false unless all have one.
bool mark_slow(const std::string& directory, const char* name, double share, std::vector<Cpu>& cpus) {
    std::vector<int> values;
    for (const Cpu& cpu : cpus) {
        const auto value = number_of(content_of(fmt::format("{}/cpu{}/{}", directory, cpu.id, name)));
        if (!value) return false;
        values.push_back(*value);
    }
    const double least = share * *std::max_element(values.begin(), values.end());
    for (size_t i = 0; i < cpus.size(); i++) cpus[i].efficient = values[i] < least;
    return true;
}

void mark_efficient(const std::string& directory, std::vector<Cpu>& cpus) {
    const std::vector<int> fast = list_of(join_path(directory, "../../cpu_core/cpus"));
    const std::vector<int> slow = list_of(join_path(directory, "../../cpu_atom/cpus"));
    if (!fast.empty() && !slow.empty()) {
        for (Cpu& cpu : cpus) cpu.efficient = contains(slow, cpu.id);
        return;
    }
    if (mark_slow(directory, "cpu_capacity", kCapacityShare, cpus)) return;
    mark_slow(directory, "cpufreq/cpuinfo_max_freq", kFrequencyShare, cpus);
}

using Cpus = std::vector<const Cpu*>;

/// Places `threads` on as many of `cpus`, filling the groups that `keys` form, outer ones first.
void fill_groups(const Cpus& cpus, size_t threads, std::span<int Cpu::*const> keys, std::vector<int>& out) {
    if (keys.empty()) {
        std::transform(cpus.begin(), cpus.begin() + static_cast<std::ptrdiff_t>(threads),
                       std::back_inserter(out), [](const Cpu* cpu) { return cpu->id; });
        return;
    }
    std::map<int, Cpus> by_key;
    for (const Cpu* cpu : cpus) by_key[cpu->*keys.front()].push_back(cpu);
    std::vector<Cpus> groups;
    groups.reserve(by_key.size());
    for (auto& [key, group] : by_key) groups.push_back(std::move(group));
    std::stable_sort(groups.begin(), groups.end(),
                     [](const Cpus& a, const Cpus& b) { return a.size() > b.size(); });
    while (threads > 0) {
        // Largest first, so the smallest with room is the last with room: of equals, the first of them.
        auto chosen = groups.begin();
        for (auto group = groups.begin(); group != groups.end(); ++group) {
            if (group->size() >= threads && group->size() < chosen->size()) chosen = group;
        }
        const size_t here = std::min(threads, chosen->size());
        fill_groups(*chosen, here, keys.subspan(1), out);
        threads -= here;
        groups.erase(chosen);
    }
}

}  // namespace

int CpuTopology::physical_cores() const {
    return static_cast<int>(
        std::count_if(cpus.begin(), cpus.end(), [](const Cpu& cpu) { return cpu.smt_rank == 0; }));
}

int CpuTopology::performance_cores() const {
    const auto fast = std::count_if(cpus.begin(), cpus.end(),
                                    [](const Cpu& cpu) { return cpu.smt_rank == 0 && !cpu.efficient; });
    return fast > 0 ? static_cast<int>(fast) : physical_cores();
}

CpuTopology read_topology(std::span<const int> affinity, const std::string& directory) {
    CpuTopology topology;
    topology.online = list_of(join_path(directory, "online"));
    std::vector<int> usable;
    for (const int id : affinity) {
        if (contains(topology.online, id)) usable.push_back(id);
    }
    if (usable.empty()) {  // the mask is what the scheduler goes by
        usable.assign(affinity.begin(), affinity.end());
        topology.online = usable;
    }
    for (const int id : usable) topology.cpus.push_back(read_cpu(fmt::format("{}/cpu{}", directory, id), id));
    finish_cpus(topology.cpus);
    mark_efficient(directory, topology.cpus);
    return topology;
}

std::vector<int> affinity_cpus() {
    constexpr int kMostCpus = 1 << 16;
    std::vector<int> cpus;
    // The kernel refuses a mask that is too short for it.
    for (int count = CPU_SETSIZE; cpus.empty() && count <= kMostCpus; count *= 2) {
        cpu_set_t* set = CPU_ALLOC(static_cast<size_t>(count));
        if (!set) break;
        const size_t bytes = CPU_ALLOC_SIZE(static_cast<size_t>(count));
        const bool known = sched_getaffinity(0, bytes, set) == 0;
        for (int id = 0; known && id < count; id++) {
            if (CPU_ISSET_S(static_cast<size_t>(id), bytes, set)) cpus.push_back(id);
        }
        CPU_FREE(set);
    }
    if (cpus.empty()) cpus.push_back(0);
    return cpus;
}

int default_threads(const CpuTopology& topology, int quota) {
    const int cores = topology.performance_cores();
    return std::max(1, quota > 0 ? std::min(quota, cores) : cores);
}

std::vector<int> choose_cpus(const CpuTopology& topology, int threads) {
    static constexpr int Cpu::*kGroups[] = {&Cpu::node, &Cpu::l3_domain};
    // Rank of preference: two an SMT rank, performance cores before efficient ones.
    std::map<int, Cpus> by_rank;
    for (const Cpu& cpu : topology.cpus) {
        by_rank[2 * std::min(cpu.smt_rank, 1) + (cpu.efficient ? 1 : 0)].push_back(&cpu);
    }
    std::vector<int> out;
    for (const auto& [rank, cpus] : by_rank) {
        const size_t left = static_cast<size_t>(std::max(0, threads)) - out.size();
        fill_groups(cpus, std::min(left, cpus.size()), kGroups, out);
    }
    return out;
}

Result<void> check_cpus(const CpuTopology& topology, std::span<const int> cpus, const std::string& place) {
    std::vector<int> usable;
    for (const Cpu& cpu : topology.cpus) usable.push_back(cpu.id);
    for (const int id : cpus) {
        if (contains(usable, id)) continue;
        if (!contains(topology.online, id)) {
            return fail(ErrorKind::invalid, place,
                        fmt::format("CPU {} is offline or does not exist; online are {}", id,
                                    cpu_list_text(topology.online)));
        }
        return fail(
            ErrorKind::invalid, place,
            fmt::format("CPU {} is outside this process's affinity mask, {}", id, cpu_list_text(usable)));
    }
    return {};
}

}  // namespace waste::container
