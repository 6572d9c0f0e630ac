#include "kernels/tier.h"

#include <array>

#if defined(__x86_64__)
#include <cpuid.h>
#elif defined(__aarch64__)
#include <asm/hwcap.h>
#include <sys/auxv.h>
#endif

namespace waste::kernels {
namespace {

struct TierName {
    Tier tier;
    Tier base;
    std::string_view name;
};

/// Slowest first.
constexpr std::array<TierName, 6> kTiers{{{Tier::scalar, Tier::scalar, "scalar"},
                                          {Tier::avx2, Tier::scalar, "avx2"},
                                          {Tier::avxvnni, Tier::avx2, "avxvnni"},
                                          {Tier::avx512, Tier::avx2, "avx512"},
                                          {Tier::neon, Tier::scalar, "neon"},
                                          {Tier::i8mm, Tier::neon, "i8mm"}}};

#if defined(__x86_64__)
// The builtin also asks the operating system whether it saves the wide registers.
bool has_avx2() {
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("bmi") &&
           __builtin_cpu_supports("bmi2");
}

/// GCC 12's and Clang 14's builtin does not know this one by name.
bool has_avxvnni() {
    constexpr unsigned kLeaf = 7, kSubleaf = 1, kAvxVnni = 1u << 4;
    unsigned eax = 0, ebx = 0, ecx = 0, edx = 0;
    return has_avx2() && __get_cpuid_count(kLeaf, kSubleaf, &eax, &ebx, &ecx, &edx) != 0 &&
           (eax & kAvxVnni) != 0;
}

bool has_avx512() {
    return has_avx2() && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") &&
           __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
           __builtin_cpu_supports("avx512cd") && __builtin_cpu_supports("avx512vnni");
}
#elif defined(__aarch64__)
bool has_neon() {
    return (getauxval(AT_HWCAP) & HWCAP_ASIMDDP) != 0;
}
bool has_i8mm() {
    return has_neon() && (getauxval(AT_HWCAP2) & HWCAP2_I8MM) != 0;
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

Tier base_tier(Tier tier) {
    for (const TierName& entry : kTiers) {
        if (entry.tier == tier) return entry.base;
    }
    return Tier::scalar;
}

bool tier_supported(Tier tier) {
    switch (tier) {
        case Tier::scalar:
            return true;
#if defined(__x86_64__)
        case Tier::avx2:
            return has_avx2();
        case Tier::avxvnni:
            return has_avxvnni();
        case Tier::avx512:
            return has_avx512();
#elif defined(__aarch64__)
        case Tier::neon:
            return has_neon();
        case Tier::i8mm:
            return has_i8mm();
#endif
        default:
            return false;
    }
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
