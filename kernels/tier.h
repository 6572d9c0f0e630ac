// Instruction-set tiers. A tier is a bundle of CPU features, named for what it needs, and every kernel has
// at most one variant per tier.
//
//   scalar   any CPU; the readable definition of each operation
//   avx2     x86-64-v3 (AVX2, FMA)
//   avxvnni  the same with AVX-VNNI (Alder Lake and newer, where AVX-512 is missing)
//   avx512   x86-64-v4 with VNNI (Cascade Lake, Zen 4 and newer)
//   neon     Armv8.2 with the dot-product extension
//   i8mm     the same with the int8 matrix-multiply extension
#pragma once

#include <optional>
#include <string_view>
#include <vector>

namespace waste::kernels {

enum class Tier { scalar, avx2, avxvnni, avx512, neon, i8mm };

std::string_view tier_name(Tier tier);
std::optional<Tier> tier_from_name(std::string_view name);

/// The tier whose variants stand in where `tier` has none of its own; scalar is its own.
Tier base_tier(Tier tier);

/// True where this CPU and operating system can run the tier's code.
bool tier_supported(Tier tier);

/// Every tier this machine can run, slowest first; `scalar` is always there.
std::vector<Tier> supported_tiers();

/// The fastest supported tier.
Tier best_tier();

}  // namespace waste::kernels
