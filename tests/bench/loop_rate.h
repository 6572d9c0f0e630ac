// Timing of a thread by its own CPU time, so that a neighbour on the core does not count.
#pragma once

#include <cstdint>

namespace waste::bench {

double thread_seconds();

/// Operations a second of the best of several runs, where a round of `loop` has `operations_a_round`.
double loop_rate(void (*loop)(int64_t rounds), double operations_a_round);

}  // namespace waste::bench
