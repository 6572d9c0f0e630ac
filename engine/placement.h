// Which CPUs the compute threads run on.
//
// By default there is one thread a physical core, on machines of unequal cores only on the fast ones, at most as many as
// the control group's CPU quota pays for. They are kept to as few L3 domains and NUMA nodes as hold them, all on the same
// set of CPUs: within it the system moves them out of a neighbour's way. A list of CPUs given by the user binds one
// thread to each.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::engine {

/// Empty: the threads run wherever the process may.
struct CpuBinding {
    std::vector<int> cpus;
    bool one_each = false;  ///< thread i on cpus[i]; otherwise every thread on any of them
};

struct Placement {
    int threads;
    CpuBinding binding;
};

/// The default for `threads` threads, 0 for the default number of them.
Placement choose_placement(int threads);

/// One thread on each CPU of a list like "0-3,8". `place` names the option in errors. Refuses CPUs that are offline or
/// outside the process's affinity mask.
Result<Placement> placement_on(std::string_view cpu_list, const std::string& place);

}  // namespace waste::engine
