// What the families of rows share: the machine's limits, the pool of weights, and how a row is declared.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "kernels/kernel_set.h"
#include "tests/bench/pool.h"
#include "tests/bench/team.h"

namespace waste::bench {

enum class Work { none, bytes, multiply_adds };

/// A row of the table.
struct Row {
    std::string name;
    int threads;
    /// The row's unit is what its time is of: a matrix, a token, an element. A call does this many.
    int64_t units_a_call;
    Work work;
    double work_a_unit;
    double limit;  ///< of that work a second; 0 where there is none
    /// Makes ready and returns what is timed. Not called for rows that the filter leaves out.
    std::function<std::function<void()>()> prepare;
};

struct Peaks {
    double int8;
    double f32;
};

class Bench {
  public:
    Bench(int threads, Pages pages);

    Team& team(int threads) { return threads == 1 ? one_ : all_; }
    /// One, and all where that is more.
    std::vector<int> thread_counts() const;
    Pool& pool() { return pool_; }
    Pages pages() const { return pages_; }

    /// Of the pool's own pages, by one thread or by all.
    const MemoryRates& memory(int threads) const { return threads == 1 ? memory_one_ : memory_all_; }
    /// Multiply-adds a second of one thread.
    const Peaks& peaks(kernels::Tier tier) const { return peaks_.at(tier); }

    /// Measures the limits of the pool and of the tiers anew.
    void measure_limits();

    /// Registers the row with the library.
    void add(Row row);

  private:
    const std::function<void()>& prepared(const Row& row);

    Pages pages_;
    Team one_{1};
    Team all_;
    Pool pool_;
    MemoryRates memory_one_{};
    MemoryRates memory_all_{};
    std::map<kernels::Tier, Peaks> peaks_;
    std::string prepared_;        ///< the name of the row that `call_` is of
    std::function<void()> call_;  ///< kept, because the library enters a row several times
};

/// The supported tiers that have kernels of their own beside the products.
std::vector<kernels::Tier> portable_tiers();

void add_decode_rows(Bench& bench);
void add_product_rows(Bench& bench);
void add_kda_rows(Bench& bench);
void add_mla_rows(Bench& bench);
void add_pointwise_rows(Bench& bench);

}  // namespace waste::bench
