#include "kernels/tier.h"

#include <array>

#if defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace waste::kernels {
namespace {

struct TierName {
    Tier tier;
    std::string_view name;
};

/// Slowest first.
constexpr std::array<TierName, 4> kTiers{
    {{Tier::scalar, "scalar"}, {Tier::avx2, "avx2"}, {Tier::avx512, "avx512"}, {Tier::neon, "neon"}}};

// The builtin also asks the operating system whether it saves the wide registers.
#if defined(__x86_64__)
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}
bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni") &&
           __builtin_cpu_supports("avx512vbmi");
}
bool has_neon() {
    return false;
}
#elif defined(__aarch64__)
bool has_avx2() {
    return false;
}
bool has_avx512() {
    return false;
}
bool has_neon() {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
#else
bool has_avx2() {
    return false;
}
bool has_avx512() {
    return false;
}
bool has_neon() {
    return false;
}
#endif

}  // namespace

std::string_view tier_name(Tier tier) {
    for (const TierName& entry : kTiers) {
        if (entry.tier == tier) return entry.name;
    }
    return "unknown";
}

std::optional<Tier> tier_from_name(std::string_view name) {
    for (const TierName& entry : kTiers) {
        if (entry.name == name) return entry.tier;
    }
    return std::nullopt;
}

bool tier_supported(Tier tier) {
    switch (tier) {
        case Tier::scalar:
            return true;
        case Tier::avx2:
            return has_avx2();
        case Tier::avx512:
            return has_avx512();
        case Tier::neon:
            return has_neon();
    }
    return false;
}

std::vector<Tier> supported_tiers() {
    std::vector<Tier> tiers;
    for (const TierName& entry : kTiers) {
        if (tier_supported(entry.tier)) tiers.push_back(entry.tier);
    }
    return tiers;
}

Tier best_tier() {
    return supported_tiers().back();
}

}  // namespace waste::kernels
