#include "tests/bench/loop_rate.h"

#include <ctime>

namespace waste::bench {

double thread_seconds() {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

double loop_rate(void (*loop)(int64_t rounds), double operations_a_round) {
    constexpr int64_t kRounds = 500'000;
    double best = 0.0;
    for (int run = 0; run < 12; ++run) {
        const double begin = thread_seconds();
        loop(kRounds);
        const double seconds = thread_seconds() - begin;
        if (const double rate = operations_a_round * kRounds / seconds; rate > best) best = rate;
    }
    return best;
}

}  // namespace waste::bench
