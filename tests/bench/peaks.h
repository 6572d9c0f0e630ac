// What the arithmetic units can do at most: loops over registers only, no memory.
#pragma once

#include "kernels/tier.h"

namespace waste::bench {

/// Multiply-adds a second of one thread with the instructions that the tier's integer kernels use; 0 for the
/// scalar tier, which has none of its own. The tier must be supported.
double int8_peak(kernels::Tier tier);

/// Fused multiply-adds of f32 likewise.
double f32_peak(kernels::Tier tier);

}  // namespace waste::bench
