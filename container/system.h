// Shared by the files that talk to the operating system; nobody else includes this.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <utility>

#include "container/result.h"

namespace waste::container {

/// A file descriptor that closes itself.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(other.release()) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor();

    int number() const { return number_; }
    int release() { return std::exchange(number_, -1); }

  private:
    int number_ = -1;
};

/// An error from `error_number` (an errno): "cannot <action>: <reason>".
tl::unexpected<Error> system_failure(int error_number, const std::string& path, const std::string& action);

/// Opens without ever blocking on a pipe, retried on EINTR. `flags` as for open(2).
Result<Descriptor> open_descriptor(const std::string& path, int flags);
/// Its length; an error for anything but a regular file.
Result<uint64_t> regular_size(int descriptor, const std::string& path);
Result<void> read_fully(int descriptor, const std::string& path, uint64_t offset, std::span<std::byte> out);
/// Content of a file of /proc, /sys or a control group, which has no size to ask for; at most 1 MiB.
Result<std::string> read_pseudo_file(const std::string& path);
Result<void> write_fully(int descriptor, const std::string& path, uint64_t offset,
                         std::span<const std::byte> data);
Result<void> sync_descriptor(int descriptor, const std::string& path);
/// Makes the directory entry of `path` durable.
Result<void> sync_parent(const std::string& path);
std::string parent_directory(const std::string& path);

/// Asks the scheduler to run the calling thread as soon as it has something to do, for a short time: for threads that
/// mostly wait for a device, beside others that compute on every core. Kernels before 6.12 take no notice.
void ask_for_short_turns();

}  // namespace waste::container
