// The directory a conversion writes to, and what may be there already.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "engine/convert/job.h"

namespace waste::engine {

class Destination {
  public:
    explicit Destination(std::string directory) : directory_(std::move(directory)) {}

    const std::string& directory() const { return directory_; }
    std::string path(std::string_view name) const;
    bool has_journal() const;
    uint64_t free_bytes() const;  ///< on its file system

    /// The fingerprint of a finished container of this job; nothing without a manifest; an error for a
    /// container of anything else. Told by config, small files, recipe, layout and the bytes of the trunk's
    /// vectors, which are encoded again: a fine-tune has its base's config and other norms.
    Result<std::optional<std::string>> finished(const ConvertJob& job, ThreadPool& pool) const;
    /// Refuses a directory with files in it that no conversion has begun.
    Result<void> check_usable() const;
    Result<void> check_space(const ContainerLayout& layout) const;
    /// If there is one.
    Result<void> remove_journal() const;

  private:
    uint64_t present_bytes(std::string_view name) const;

    std::string directory_;
};

}  // namespace waste::engine
