// Several engines on one machine: each tells the others of the same user what memory it will take, so that automatic
// budgets do not promise the same memory twice.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "container/live_files.h"
#include "engine/run_plan.h"

namespace waste::engine {

struct Neighbour {
    int64_t pid;
    uint64_t budget_bytes;
    /// Of its budget, memory that is gone for others: what it has allocated and touched. Its mapped weights are not
    /// in it, the kernel calls them available. 0 where the system does not tell.
    uint64_t taken_bytes;
};

/// Engines that run now, those of this process included, as entered in `directory`
/// (container::user_runtime_directory()). Entries that make no sense are left out.
Result<std::vector<Neighbour>> other_engines(const std::string& directory);

/// This engine's budget, known to others as long as the object lives.
class BudgetEntry {
  public:
    using Decide = std::function<Result<uint64_t>(std::span<const Neighbour> others)>;

    /// Enters what `decide` returns: the total_bytes of the run that it plans. Between its look at the others and the
    /// entry no engine comes, so two that start together do not both take the whole machine.
    static Result<BudgetEntry> enter(const std::string& directory, const Decide& decide);

  private:
    explicit BudgetEntry(container::LiveFile file) : file_(std::move(file)) {}
    container::LiveFile file_;
};

/// What the machine says now, with what is promised to `others`. An engine in a control group of its own still counts
/// in full: where that is wrong, budgets are better given than chosen. `root` stands before every path ("" outside
/// tests).
Result<MemoryFacts> read_memory_facts(const std::string& root, std::span<const Neighbour> others);

}  // namespace waste::engine
