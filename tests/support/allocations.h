// Counts what a program takes that links allocations.cc, which replaces operator new, with calloc and mmap wrapped
// (-Wl,--wrap=calloc,--wrap=mmap): the calls of our own objects, not the ones inside the system's libraries.
#pragma once

#include <cstdint>

namespace waste::test {

/// Calls of operator new.
int64_t allocation_count();

/// Bytes asked of operator new, calloc and anonymous mmap since the start, whether freed or not.
int64_t allocated_bytes();

}  // namespace waste::test
