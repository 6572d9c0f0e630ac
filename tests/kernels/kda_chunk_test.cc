// The chunk kernel alone: f64 oracle -> scalar and every tier within derived bounds; scalar -> tier bit for
// bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/kda.h"
#include "tests/kernels/kda_oracle.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

using test::KdaTokens;

struct Shape {
    int64_t key_dim;
    int64_t value_dim;
};

constexpr Shape kShapes[] = {{16, 16}, {16, 32},   {32, 16},  {48, 80},
                             {80, 48}, {128, 128}, {128, 16}, {144, 48}};

class KdaChunkTest : public testing::TestWithParam<KdaChunkVariant> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam().tier)) {
            GTEST_SKIP() << "this CPU has no " << tier_name(GetParam().tier);
        }
    }
};

/// One chunk's result, with guards and the columns between rows checked.
struct Result {
    std::vector<float> out;
    std::vector<float> state;
};

Result run(KdaChunk kernel, const KdaTokens& tokens, const std::vector<float>& state_before) {
    const KdaCall call = tokens.call();
    test::GuardedFloats state(call.key_dim * call.value_dim);
    test::GuardedFloats out(kKdaChunk * call.out_stride);
    test::GuardedFloats scratch(kda_chunk_scratch_floats(call.key_dim));
    std::copy(state_before.begin(), state_before.end(), state.data());
    const float untouched = *out.data();
    const KdaChunkHead head{call.q,       call.k,         call.stride, call.gate,
                            call.stride,  call.v,         call.stride, call.beta,
                            call.key_dim, call.value_dim, out.data(),  call.out_stride};
    kernel(head, state.data(), scratch.data());
    EXPECT_TRUE(state.guards_intact());
    EXPECT_TRUE(out.guards_intact());
    EXPECT_TRUE(scratch.guards_intact());
    for (int64_t i = 0; i < kKdaChunk * call.out_stride; ++i) {
        if (i % call.out_stride < call.value_dim) continue;
        EXPECT_EQ(out.data()[i], untouched);
    }
    return {{out.values().begin(), out.values().end()}, {state.values().begin(), state.values().end()}};
}

struct Decays {
    const char* name;
    float (*draw)(test::Random&);
};

constexpr Decays kDecays[] = {
    {"spread over [0, 1)", [](test::Random& random) { return random.uniform(0.0f, 1.0f); }},
    {"at the lower bound", [](test::Random&) { return std::exp(-5.0f); }},
    {"near one", [](test::Random& random) { return 1.0f - random.uniform(0.0f, 1e-4f); }},
    {"one", [](test::Random&) { return 1.0f; }},
    {"zero", [](test::Random&) { return 0.0f; }},
    {"zero, one or tiny",
     [](test::Random& random) { return random.bits() % 3 == 0 ? 1e-38f : float(random.bits() % 2); }},
    {"from the bound to none", [](test::Random& random) { return std::exp(-random.uniform(0.0f, 5.0f)); }},
};

TEST_P(KdaChunkTest, AgreesWithOracle) {
    test::Random random(1);
    for (const Shape shape : kShapes) {
        for (const Decays& decays : kDecays) {
            SCOPED_TRACE(testing::Message()
                         << "K " << shape.key_dim << " V " << shape.value_dim << ", decay " << decays.name);
            const KdaTokens tokens =
                test::random_kda_tokens(shape.key_dim, shape.value_dim, kKdaChunk, random, decays.draw);
            const std::vector<float> state = random.normals(shape.key_dim * shape.value_dim, 1.0f);
            const Result result = run(GetParam().run, tokens, state);
            test::KdaOracle oracle(tokens, state);
            oracle.run(kKdaChunk, 0);
            EXPECT_EQ(oracle.difference(result.out, result.state), "");
        }
    }
}

TEST_P(KdaChunkTest, EqualsScalarBitForBit) {
    test::Random random(2);
    for (const Shape shape : kShapes) {
        for (const Decays& decays : kDecays) {
            SCOPED_TRACE(testing::Message()
                         << "K " << shape.key_dim << " V " << shape.value_dim << ", decay " << decays.name);
            const KdaTokens tokens =
                test::random_kda_tokens(shape.key_dim, shape.value_dim, kKdaChunk, random, decays.draw);
            const std::vector<float> state = random.normals(shape.key_dim * shape.value_dim, 1.0f);
            const Result result = run(GetParam().run, tokens, state);
            const Result expected = run(kda_chunk_variants().front().run, tokens, state);
            ASSERT_EQ(test::first_difference(result.out, expected.out), "");
            ASSERT_EQ(test::first_difference(result.state, expected.state), "");
        }
    }
}

TEST_P(KdaChunkTest, OutMayBeV) {
    test::Random random(3);
    for (const Shape shape : kShapes) {
        KdaTokens tokens =
            test::random_kda_tokens(shape.key_dim, shape.value_dim, kKdaChunk, random, kDecays[0].draw);
        const std::vector<float> before = random.normals(shape.key_dim * shape.value_dim, 1.0f);
        const Result expected = run(GetParam().run, tokens, before);
        const KdaCall call = tokens.call();
        std::vector<float> state = before;
        std::vector<float> scratch(static_cast<size_t>(kda_chunk_scratch_floats(call.key_dim)));
        const KdaChunkHead head{call.q,       call.k,         call.stride,     call.gate,
                                call.stride,  call.v,         call.stride,     call.beta,
                                call.key_dim, call.value_dim, tokens.v.data(), call.stride};
        GetParam().run(head, state.data(), scratch.data());
        EXPECT_EQ(test::first_difference(state, expected.state), "");
        for (size_t i = 0; i < tokens.v.size(); ++i) {
            if (static_cast<int64_t>(i) % call.stride >= call.value_dim) continue;
            ASSERT_EQ(tokens.v[i], expected.out[i]);
        }
    }
}

TEST_P(KdaChunkTest, NanReachesItsColumnFromItsTokenOn) {
    test::Random random(4);
    KdaTokens tokens = test::random_kda_tokens(32, 48, kKdaChunk, random, kDecays[6].draw);
    for (const int64_t bad : {0, 5, 8, 31, 63}) {
        SCOPED_TRACE(bad);
        KdaTokens spoilt = tokens;
        spoilt.v[static_cast<size_t>(bad * tokens.stride + 21)] = std::nanf("");
        const Result result = run(GetParam().run, spoilt, random.normals(32 * 48, 1.0f));
        for (int64_t i = 0; i < kKdaChunk * 48; ++i) {
            const float value = result.out[static_cast<size_t>(i / 48 * tokens.stride + i % 48)];
            ASSERT_EQ(std::isnan(value), i % 48 == 21 && i / 48 >= bad) << i;
        }
        for (size_t i = 0; i < result.state.size(); ++i) ASSERT_EQ(std::isnan(result.state[i]), i % 48 == 21);
    }
}

TEST_P(KdaChunkTest, ZeroKeysLeaveADecayedState) {
    test::Random random(5);
    KdaTokens tokens = test::random_kda_tokens(32, 16, kKdaChunk, random, [](test::Random&) { return 0.5f; });
    std::fill(tokens.k.begin(), tokens.k.end(), 0.0f);
    const std::vector<float> before = random.normals(32 * 16, 1.0f);
    const Result result = run(GetParam().run, tokens, before);
    for (size_t i = 0; i < before.size(); ++i) EXPECT_EQ(result.state[i], before[i] * 0x1p-64f);
}

INSTANTIATE_TEST_SUITE_P(Variants, KdaChunkTest,
                         testing::ValuesIn(kda_chunk_variants().begin(), kda_chunk_variants().end()),
                         [](const testing::TestParamInfo<KdaChunkVariant>& variant) {
                             return std::string(tier_name(variant.param.tier));
                         });

}  // namespace
}  // namespace waste::kernels
