// Arithmetic of sizes from untrusted configs: stops at the largest number instead of wrapping.
#pragma once

#include <cstdint>

namespace waste::engine {

inline uint64_t add(uint64_t a, uint64_t b) {
    uint64_t sum;
    return __builtin_add_overflow(a, b, &sum) ? UINT64_MAX : sum;
}

inline uint64_t subtract(uint64_t a, uint64_t b) {
    return a > b ? a - b : 0;
}

inline uint64_t multiply(uint64_t a, uint64_t b) {
    uint64_t product;
    return __builtin_mul_overflow(a, b, &product) ? UINT64_MAX : product;
}

/// To a multiple of `unit`.
inline uint64_t round_up(uint64_t bytes, uint64_t unit) {
    const uint64_t units = bytes / unit + (bytes % unit != 0);
    return multiply(units, unit);
}

}  // namespace waste::engine
