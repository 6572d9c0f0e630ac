#include "kernels/tier.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kernels/format.h"
#include "kernels/kernel_set.h"

namespace waste::kernels {
namespace {

TEST(TierTest, NamesGoBothWays) {
    for (const Tier tier : {Tier::scalar, Tier::avx2, Tier::avxvnni, Tier::avx512, Tier::neon, Tier::i8mm}) {
        EXPECT_EQ(tier_from_name(tier_name(tier)), tier);
    }
    EXPECT_FALSE(tier_from_name("sse9").has_value());
    EXPECT_FALSE(tier_from_name("").has_value());
}

TEST(TierTest, ScalarIsAlwaysThereAndTheBestComesLast) {
    const std::vector<Tier> tiers = supported_tiers();
    ASSERT_FALSE(tiers.empty());
    EXPECT_EQ(tiers.front(), Tier::scalar);
    EXPECT_EQ(tiers.back(), best_tier());
    for (const Tier tier : tiers) EXPECT_TRUE(tier_supported(tier)) << tier_name(tier);
}

TEST(TierTest, EveryBinaryHasASimdTierOfItsArchitecture) {
    const auto has = [](Tier tier) {
        const auto variants = kda_step_variants();
        return std::any_of(variants.begin(), variants.end(), [&](auto& v) { return v.tier == tier; });
    };
    EXPECT_TRUE(has(Tier::neon) || (has(Tier::avx2) && has(Tier::avx512)));
    EXPECT_FALSE(has(Tier::neon) && has(Tier::avx2));
}

TEST(TierTest, BasesLeadToScalar) {
    for (Tier tier : supported_tiers()) {
        int steps = 0;
        while (tier != Tier::scalar && steps++ < 10) {
            EXPECT_TRUE(tier_supported(base_tier(tier))) << tier_name(tier);
            tier = base_tier(tier);
        }
        EXPECT_EQ(tier, Tier::scalar);
    }
}

TEST(KernelSetTest, IsCompleteForEverySupportedTier) {
    for (const Tier tier : supported_tiers()) {
        const KernelSet set = kernels_for(tier);
        EXPECT_EQ(set.tier, tier);
        EXPECT_NE(set.kda_step, nullptr);
        EXPECT_NE(set.kda_chunk, nullptr);
        EXPECT_TRUE(set.activation && set.attn_res && set.conv && set.kda_gate && set.mla && set.norm &&
                    set.quantize)
            << tier_name(tier);
        for (const FormatInfo& info : all_formats()) {
            const auto index = static_cast<size_t>(info.format);
            EXPECT_NE(set.matmul_f32[index], nullptr) << tier_name(tier) << " " << info.name;
            EXPECT_EQ(set.matmul_int8[index] != nullptr, info.int8_kernel)
                << tier_name(tier) << " " << info.name;
        }
    }
}

TEST(KernelSetTest, TakesTheTiersOwnVariants) {
    for (const Tier tier : supported_tiers()) {
        const KernelSet set = kernels_for(tier);
        for (const KdaStepVariant& variant : kda_step_variants()) {
            if (variant.tier == tier) {
                EXPECT_EQ(set.kda_step, variant.run);
            }
        }
        for (const MatmulInt8Variant& variant : matmul_int8_variants()) {
            if (variant.tier == tier) {
                EXPECT_EQ(set.matmul_int8[static_cast<size_t>(variant.format)], variant.run);
            }
        }
    }
}

}  // namespace
}  // namespace waste::kernels
