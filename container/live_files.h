// What a process says about itself to others of the same user while it lives: small files in a directory of the user's
// own, each locked by its process. The lock goes with the process, however that ends, so a file without one is a
// leftover and is removed by whoever looks next.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "container/result.h"

namespace waste::container {

struct LiveEntry {
    int64_t pid;          ///< of the process that wrote it, as it knows itself
    std::string content;  ///< at most 4 KiB; untrusted, like any file
};

/// $XDG_RUNTIME_DIR/waste, or /tmp/waste-UID where there is no such directory of the user's own.
std::string user_runtime_directory();

/// The files of processes that live, this one's included. Makes the directory, for the user alone, if need be; refuses
/// a link and a directory that others own or may enter.
Result<std::vector<LiveEntry>> list_live_files(const std::string& directory);

/// This process's file; it goes with the object. Move-only.
class LiveFile {
  public:
    using Decide = std::function<Result<std::string>(std::span<const LiveEntry> others)>;

    /// Writes what `decide` returns, given the files that are there (as list_live_files). No other process lists or
    /// enters meanwhile, so of two that start together one sees the other.
    static Result<LiveFile> enter(const std::string& directory, const Decide& decide);
    LiveFile(LiveFile&& other) noexcept;
    LiveFile& operator=(LiveFile&& other) noexcept;
    ~LiveFile();

    const std::string& path() const { return path_; }

  private:
    LiveFile() = default;
    std::string path_;
    int descriptor_ = -1;
    int64_t pid_ = 0;  ///< whose it is: a fork leaves it alone
};

}  // namespace waste::container
