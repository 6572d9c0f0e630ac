#include "tests/support/allocations.h"

#include <sys/mman.h>

#include <atomic>
#include <cstdlib>
#include <new>

namespace {

std::atomic<int64_t> allocations{0};
std::atomic<int64_t> bytes{0};

}  // namespace

void* operator new(size_t size) {
    allocations++;
    bytes += static_cast<int64_t>(size);
    if (void* p = std::malloc(size)) return p;
    throw std::bad_alloc();
}

void operator delete(void* p) noexcept {
    std::free(p);
}

void operator delete(void* p, size_t) noexcept {
    std::free(p);
}

// The linker's names for a wrapped function and the one behind it.
extern "C" {
void* __real_calloc(size_t count, size_t size);
void* __real_mmap(void* address, size_t length, int protection, int flags, int file, off_t offset);

void* __wrap_calloc(size_t count, size_t size) {
    bytes += static_cast<int64_t>(count * size);
    return __real_calloc(count, size);
}

void* __wrap_mmap(void* address, size_t length, int protection, int flags, int file, off_t offset) {
    if (flags & MAP_ANONYMOUS) bytes += static_cast<int64_t>(length);
    return __real_mmap(address, length, protection, flags, file, offset);
}
}

namespace waste::test {

int64_t allocation_count() {
    return allocations;
}

int64_t allocated_bytes() {
    return bytes;
}

}  // namespace waste::test
