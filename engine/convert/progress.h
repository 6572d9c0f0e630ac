// How far a conversion is, told to its caller.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>

#include "container/result.h"

namespace waste::engine {

struct ConvertProgress {
    uint64_t bytes_done, bytes_total;  ///< of the container
    uint64_t bytes_skipped;            ///< of bytes_done: finished by an earlier run
    std::string what;                  ///< "layer 12", "experts of layer 12"
};

/// Returns false to stop.
using ProgressReport = std::function<bool(const ConvertProgress&)>;

/// Adds up and reports, one call of `report` at a time. Thread-safe.
class ProgressMeter {
  public:
    ProgressMeter(const ProgressReport& report, std::string destination, uint64_t bytes_total)
        : report_(report), destination_(std::move(destination)), progress_{0, bytes_total, 0, {}} {}

    /// An error once the caller has asked to stop.
    Result<void> advance(uint64_t bytes, const std::string& what);
    /// The same for bytes that an earlier run has written.
    Result<void> skip(uint64_t bytes, const std::string& what);

  private:
    Result<void> add(uint64_t bytes, uint64_t skipped, const std::string& what);

    const ProgressReport& report_;
    std::string destination_;
    std::mutex mutex_;
    ConvertProgress progress_;  ///< guarded by mutex_
};

}  // namespace waste::engine
