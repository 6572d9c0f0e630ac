// Fits a model into memory: plans with what the machine has now, and holds the weights accordingly.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "engine/model.h"
#include "engine/neighbours.h"
#include "engine/run_plan.h"
#include "engine/session.h"

namespace waste::engine {

struct FitOptions {
    std::optional<uint64_t> budget_bytes;  ///< for everything the process takes; nothing: as much as is safe
    ReplacementPolicy policy = kDefaultReplacement;
    bool verify = true;                    ///< compare what is read from the drive with its checksums
    bool copy_trunk = false;               ///< into anonymous memory, where it is not streamed
    bool lock = false;                     ///< see TrunkOptions
    container::DriveReaderOptions reader;  ///< depth and pieces of 0: as the drive was measured
    std::vector<std::string> mirrors;  ///< directories with copies of the container's files, on other drives
};

/// How a model is held, and the budget that other engines on this machine see while the object lives.
struct Fitted {
    RunPlan plan;
    std::optional<BudgetEntry> entry;  ///< nothing where it could not be made
    std::string warning;               ///< what went wrong and does not matter much; empty: nothing
};

/// What a plan asks of a model.
Arrangement arrangement_of(const RunPlan& plan, const FitOptions& options);

/// Plans with what the machine has now and arranges the model. Before there are sessions, which are to be created with
/// the same options.
Result<Fitted> fit_model(Model& model, const SessionOptions& session, const FitOptions& options);

}  // namespace waste::engine
