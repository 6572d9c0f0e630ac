// Memory straight from the operating system, for blocks of many MiB.
#pragma once

#include <cstddef>
#include <optional>
#include <span>

namespace waste::container {

/// Keeps a range of memory, or of a mapping, from being dropped or swapped; 0, or the errno of why not.
int lock_in_memory(std::span<const std::byte> range);

inline constexpr size_t kHugePageBytes = size_t{2} << 20;

/// Zeroed anonymous memory on a huge page's boundary, in huge pages where the system grants them (a walk over
/// weights or states is up to a third faster so), taken from the system only where touched. Owns its pages;
/// move-only.
class SystemMemory {
  public:
    /// Nothing where the system has no such range left.
    static std::optional<SystemMemory> map(size_t bytes);
    SystemMemory() = default;
    SystemMemory(SystemMemory&& other) noexcept;
    SystemMemory& operator=(SystemMemory&& other) noexcept;
    ~SystemMemory();

    std::byte* data() const { return data_; }
    /// Returns a range's pages, which read as zero until written again. Both multiples of 4096.
    void give_back(size_t offset, size_t bytes);

  private:
    std::byte* data_ = nullptr;
    void* mapping_ = nullptr;
    size_t mapped_bytes_ = 0;
};

}  // namespace waste::container
