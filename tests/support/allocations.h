// Counts calls of operator new in a program that links allocations.cc, which replaces it.
#pragma once

#include <cstdint>

namespace waste::test {

int64_t allocation_count();

}  // namespace waste::test
