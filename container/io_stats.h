// What this process has read from drives so far.
#pragma once

#include <cstdint>
#include <optional>

namespace waste::container {

/// Bytes fetched from storage by this process, page faults on mapped files included (/proc/self/io); nothing
/// where the system does not say.
std::optional<uint64_t> drive_bytes_read();

}  // namespace waste::container
