// Tests that run once for every tier that kernels/portable is compiled for.
#pragma once

#include <gtest/gtest.h>

#include <ostream>
#include <string>
#include <vector>

#include "kernels/variants.h"

namespace waste::kernels {

inline void PrintTo(const PortableKernels& kernels, std::ostream* out) {
    *out << tier_name(kernels.tier);
}

}  // namespace waste::kernels

namespace waste::test {

class TierTest : public testing::TestWithParam<kernels::PortableKernels> {
  protected:
    void SetUp() override {
        if (!kernels::tier_supported(GetParam().tier)) GTEST_SKIP() << "this CPU lacks the tier";
    }
    /// What every tier has to equal bit for bit.
    static const kernels::PortableKernels& scalar() { return *kernels::portable_kernels().front(); }
};

inline auto all_tiers() {
    std::vector<kernels::PortableKernels> tiers;
    for (const kernels::PortableKernels* tier : kernels::portable_kernels()) tiers.push_back(*tier);
    return testing::ValuesIn(tiers);
}

inline std::string tier_of(const testing::TestParamInfo<kernels::PortableKernels>& info) {
    return std::string(kernels::tier_name(info.param.tier));
}

}  // namespace waste::test
