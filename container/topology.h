// The CPUs of this machine as Linux describes them, and which of them the compute threads should have.
//
// What cannot be read or makes no sense counts as not told: then a CPU is a core of its own, and all are in one package,
// one node, one cache domain and one class. Nothing here fails because of what sysfs holds.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "container/result.h"

namespace waste::container {

struct Cpu {
    int id;
    int core;  ///< equal for the hardware threads of one core: the lowest id of them
    int package;
    int node;        ///< NUMA
    int l3_domain;   ///< equal for CPUs that share an L3: the lowest id of them; without one, of the package
    int smt_rank;    ///< 0 for the first usable hardware thread of its core
    bool efficient;  ///< one of the slow cores of a machine of unequal ones
};

struct CpuTopology {
    std::vector<Cpu> cpus;    ///< online and in the affinity mask, by id; never empty
    std::vector<int> online;  ///< ids, whoever may use them

    int physical_cores() const;
    int performance_cores() const;  ///< those of them that are not efficient; all, if all are
};

/// `directory` is another one in tests. What Intel's hybrids say stands beside it, in ../../cpu_core and ../../cpu_atom.
CpuTopology read_topology(std::span<const int> affinity,
                          const std::string& directory = "/sys/devices/system/cpu");

/// Ids in the calling thread's affinity mask, ascending, at least one.
std::vector<int> affinity_cpus();

/// Physical performance cores, but no more than `quota` (read_cpu_quota(); 0: none), at least 1.
int default_threads(const CpuTopology& topology, int quota);

/// Up to `threads` CPUs for as many compute threads, fewer only where there are fewer. Cores first, in this order:
/// performance cores, efficient cores, further hardware threads of the former, of the latter. Among equals, nodes and in
/// them cache domains are filled one after the other: the smallest that holds all that is left to place, else the
/// largest; so threads that fit one domain are in one.
std::vector<int> choose_cpus(const CpuTopology& topology, int threads);

/// Refuses CPUs that are offline or outside the affinity mask, by name. `place` names the option.
Result<void> check_cpus(const CpuTopology& topology, std::span<const int> cpus, const std::string& place);

}  // namespace waste::container
