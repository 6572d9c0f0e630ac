#include "engine/placement.h"

#include <algorithm>

#include "container/cpu_list.h"
#include "container/machine.h"
#include "container/topology.h"

namespace waste::engine {

Placement choose_placement(int threads) {
    const std::vector<int> mask = container::affinity_cpus();
    const container::CpuTopology topology = container::read_topology(mask);
    if (threads == 0) threads = container::default_threads(topology, container::read_cpu_quota(""));
    std::vector<int> cpus = container::choose_cpus(topology, threads);
    std::sort(cpus.begin(), cpus.end());
    // The whole mask is where they run anyway.
    if (cpus.size() == mask.size()) cpus.clear();
    return {threads, {std::move(cpus), false}};
}

Result<Placement> placement_on(std::string_view cpu_list, const std::string& place) {
    auto cpus = container::parse_cpu_list(cpu_list, place);
    if (!cpus) return pass(cpus);
    const container::CpuTopology topology = container::read_topology(container::affinity_cpus());
    if (const auto ok = container::check_cpus(topology, *cpus, place); !ok) return pass(ok);
    const auto threads = static_cast<int>(cpus->size());
    return Placement{threads, {std::move(*cpus), true}};
}

}  // namespace waste::engine
