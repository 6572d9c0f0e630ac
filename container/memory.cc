#include "container/memory.h"

#include <sys/mman.h>

#include <cerrno>
#include <cstdint>
#include <utility>

namespace waste::container {

int lock_in_memory(std::span<const std::byte> range) {
    return mlock(range.data(), range.size()) == 0 ? 0 : errno;
}

std::optional<SystemMemory> SystemMemory::map(size_t bytes) {
    SystemMemory memory;
    if (__builtin_add_overflow(bytes, kHugePageBytes, &memory.mapped_bytes_)) return std::nullopt;
    void* mapping =
        mmap(nullptr, memory.mapped_bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapping == MAP_FAILED) return std::nullopt;
    memory.mapping_ = mapping;
    const auto address = reinterpret_cast<uintptr_t>(mapping);
    const uintptr_t aligned = (address + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
    memory.data_ = static_cast<std::byte*>(mapping) + (aligned - address);
    (void)madvise(memory.data_, bytes, MADV_HUGEPAGE);
    return memory;
}

SystemMemory::SystemMemory(SystemMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      mapping_(std::exchange(other.mapping_, nullptr)),
      mapped_bytes_(std::exchange(other.mapped_bytes_, 0)) {}

SystemMemory& SystemMemory::operator=(SystemMemory&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(mapping_, other.mapping_);
    std::swap(mapped_bytes_, other.mapped_bytes_);
    return *this;
}

void SystemMemory::give_back(size_t offset, size_t bytes) {
    (void)madvise(data_ + offset, bytes, MADV_DONTNEED);
}

SystemMemory::~SystemMemory() {
    if (mapping_) munmap(mapping_, mapped_bytes_);
}

}  // namespace waste::container
