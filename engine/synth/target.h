// The directory a synthetic container is written to: under a temporary name until it is whole.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "container/file.h"
#include "container/manifest.h"
#include "container/result.h"

namespace waste::engine {

/// Ends the recipes in the manifest of a container that synthesize() has written.
inline constexpr std::string_view kSynthMark = ", random weights";

class SynthTarget {
  public:
    explicit SynthTarget(std::string_view destination);
    SynthTarget(const SynthTarget&) = delete;
    SynthTarget& operator=(const SynthTarget&) = delete;
    /// Removes the temporary directory and what is in it, unless finish() has succeeded.
    ~SynthTarget();

    /// Refuses a destination that is there already, except an empty directory and, if it may be replaced, a synthetic
    /// container.
    Result<void> check_usable(bool replace) const;
    Result<void> check_space(uint64_t bytes) const;
    uint64_t free_bytes() const;  ///< on its file system

    /// Makes the temporary directory, or empties one that a killed run has left.
    Result<void> begin();
    std::string path(std::string_view name) const;  ///< while it is being written
    /// Everything is written and on the drive: the directory gets its name. What it replaces goes.
    Result<void> finish();

  private:
    std::string destination_;
    std::string partial_;
    std::optional<container::DirectoryLock> lock_;  ///< held from begin() on
    bool begun_ = false;                            ///< and not finished
};

}  // namespace waste::engine
