// The step kernel: f64 oracle -> scalar within derived bounds; scalar -> every tier bit for bit. The gates.
#include "kernels/kda.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>

#include "kernels/kernel_set.h"
#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

using test::kRounding;

struct Shape {
    int64_t key_dim;
    int64_t value_dim;
};

constexpr Shape kShapes[] = {{1, 1},     {1, 128}, {128, 1}, {3, 7},   {5, 17},   {16, 31},
                             {33, 33},   {32, 40}, {64, 64}, {48, 96}, {80, 145}, {128, 128},
                             {128, 200}, {7, 129}, {6, 63},  {6, 127}, {6, 191}};

/// Inputs of one token and head, as the layer would hand them over.
struct Token {
    std::vector<float> q, k, v, decay;
    float beta;

    KdaHead head() const {
        return {q.data(),
                k.data(),
                v.data(),
                decay.data(),
                beta,
                static_cast<int64_t>(q.size()),
                static_cast<int64_t>(v.size())};
    }
};

Token random_token(Shape shape, test::Random& random) {
    Token token{random.normals(shape.key_dim, 1.0f),
                random.normals(shape.key_dim, 1.0f),
                random.normals(shape.value_dim, 1.0f),
                {},
                random.uniform(0.05f, 0.95f)};
    const NormKernels& norm = *kernels_for(Tier::scalar).norm;
    norm.l2_norm(token.q.data(), 1.0f / std::sqrt(static_cast<float>(shape.key_dim)), shape.key_dim,
                 token.q.data());
    norm.l2_norm(token.k.data(), 1.0f, shape.key_dim, token.k.data());
    for (int64_t i = 0; i < shape.key_dim; ++i) token.decay.push_back(random.uniform(0.0f, 1.0f));
    return token;
}

KdaStep scalar_step() {
    return kda_step_variants().front().run;
}

class KdaStepTest : public testing::TestWithParam<KdaStepVariant> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam().tier)) {
            GTEST_SKIP() << "this CPU has no " << tier_name(GetParam().tier);
        }
    }
};

/// One step in f64 with the rounding errors an f32 step may make, column by column.
void expect_near_oracle(const KdaHead& head, const std::vector<float>& before, std::span<const float> after,
                        std::span<const float> out) {
    const auto at = [&](int64_t i, int64_t col) { return static_cast<size_t>(i * head.value_dim + col); };
    const auto steps = static_cast<double>(head.key_dim) + 2.0;
    for (int64_t col = 0; col < head.value_dim; ++col) {
        double pk = 0, pq = 0, kq = 0, pk_size = 0, pq_size = 0, kq_size = 0;
        for (int64_t i = 0; i < head.key_dim; ++i) {
            const double decayed = double{head.decay[i]} * double{before[at(i, col)]};
            pk += head.k[i] * decayed;
            pq += head.q[i] * decayed;
            kq += double{head.k[i]} * double{head.q[i]};
            pk_size += std::abs(head.k[i] * decayed);
            pq_size += std::abs(head.q[i] * decayed);
            kq_size += std::abs(double{head.k[i]} * double{head.q[i]});
        }
        const double u = head.beta * (head.v[col] - pk);
        const double u_size = head.beta * (std::abs(head.v[col]) + pk_size);
        const double u_error = (steps * head.beta * pk_size + 3.0 * u_size) * kRounding;
        for (int64_t i = 0; i < head.key_dim; ++i) {
            const double decayed = double{head.decay[i]} * double{before[at(i, col)]};
            const double rounding = 2.0 * kRounding * (std::abs(head.k[i]) * u_size + std::abs(decayed));
            ASSERT_NEAR(after[at(i, col)], decayed + head.k[i] * u,
                        1.01 * (std::abs(head.k[i]) * u_error + rounding))
                << "state row " << i << " column " << col;
        }
        const double out_error =
            (steps * (pq_size + kq_size * u_size) + pq_size + kq_size * u_size) * kRounding +
            std::abs(kq) * u_error;
        ASSERT_NEAR(out[static_cast<size_t>(col)], pq + kq * u, 1.01 * out_error) << "out column " << col;
    }
}

TEST_P(KdaStepTest, AgreesWithOracle) {
    test::Random random(1);
    for (const Shape shape : kShapes) {
        SCOPED_TRACE(testing::Message() << "K " << shape.key_dim << " V " << shape.value_dim);
        const int64_t size = shape.key_dim * shape.value_dim;
        const std::vector<float> before = random.normals(size, 1.0f);
        const Token token = random_token(shape, random);
        test::GuardedFloats state(size);
        test::GuardedFloats out(shape.value_dim);
        std::copy(before.begin(), before.end(), state.data());
        GetParam().run(token.head(), state.data(), out.data());
        EXPECT_TRUE(state.guards_intact());
        EXPECT_TRUE(out.guards_intact());
        expect_near_oracle(token.head(), before, state.values(), out.values());
    }
}

TEST_P(KdaStepTest, EqualsScalarBitForBit) {
    test::Random random(2);
    for (const Shape shape : kShapes) {
        SCOPED_TRACE(testing::Message() << "K " << shape.key_dim << " V " << shape.value_dim);
        std::vector<float> state = random.normals(shape.key_dim * shape.value_dim, 1.0f);
        std::vector<float> expected_state = state;
        std::vector<float> out(static_cast<size_t>(shape.value_dim));
        std::vector<float> expected_out = out;
        for (int step = 0; step < 5; ++step) {
            const Token token = random_token(shape, random);
            GetParam().run(token.head(), state.data(), out.data());
            scalar_step()(token.head(), expected_state.data(), expected_out.data());
            ASSERT_EQ(test::first_difference(out, expected_out), "");
            ASSERT_EQ(test::first_difference(state, expected_state), "");
        }
    }
}

TEST_P(KdaStepTest, OutMayBeV) {
    test::Random random(3);
    for (const Shape shape : kShapes) {
        Token token = random_token(shape, random);
        std::vector<float> state = random.normals(shape.key_dim * shape.value_dim, 1.0f);
        std::vector<float> same_state = state;
        std::vector<float> out(token.v.size());
        GetParam().run(token.head(), state.data(), out.data());
        GetParam().run(token.head(), same_state.data(), token.v.data());
        EXPECT_EQ(test::first_difference(token.v, out), "");
        EXPECT_EQ(test::first_difference(same_state, state), "");
    }
}

TEST_P(KdaStepTest, ZeroKeysAndQueriesLeaveADecayedState) {
    test::Random random(4);
    Token token = random_token({64, 48}, random);
    std::fill(token.k.begin(), token.k.end(), 0.0f);
    std::fill(token.q.begin(), token.q.end(), 0.0f);
    const std::vector<float> before = random.normals(64 * 48, 1.0f);
    std::vector<float> state = before;
    std::vector<float> out(48);
    GetParam().run(token.head(), state.data(), out.data());
    for (const float value : out) EXPECT_EQ(value, 0.0f);
    for (size_t i = 0; i < state.size(); ++i) EXPECT_EQ(state[i], token.decay[i / 48] * before[i]);
}

TEST_P(KdaStepTest, ForgetsEverythingWhenTheDecayIsZero) {
    test::Random random(5);
    Token token = random_token({32, 20}, random);
    std::fill(token.decay.begin(), token.decay.end(), 0.0f);
    std::vector<float> state = random.normals(32 * 20, 1e30f);
    std::vector<float> fresh(state.size(), 0.0f);
    std::vector<float> out(20), fresh_out(20);
    GetParam().run(token.head(), state.data(), out.data());
    GetParam().run(token.head(), fresh.data(), fresh_out.data());
    for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], fresh_out[i]);
    for (size_t i = 0; i < state.size(); ++i) EXPECT_EQ(state[i], fresh[i]);
}

TEST_P(KdaStepTest, StaysFiniteOverLongSequences) {
    test::Random random(6);
    const Shape shape{16, 16};
    std::vector<float> state(256, 0.0f);
    std::vector<float> out(16);
    for (int step = 0; step < 4000; ++step) {
        Token token = random_token(shape, random);
        if (step % 2 == 0) std::fill(token.decay.begin(), token.decay.end(), 1.0f);
        GetParam().run(token.head(), state.data(), out.data());
    }
    // |S| is a contraction plus beta k v a token: values stay of the order of v.
    for (const float value : state) ASSERT_LT(std::abs(value), 100.0f);
}

TEST_P(KdaStepTest, PassesNanOn) {
    test::Random random(7);
    Token token = random_token({8, 20}, random);
    token.v[19] = std::nanf("");
    std::vector<float> state = random.normals(160, 1.0f);
    std::vector<float> out(20);
    GetParam().run(token.head(), state.data(), out.data());
    for (size_t col = 0; col < 20; ++col) EXPECT_EQ(std::isnan(out[col]), col == 19);
}

INSTANTIATE_TEST_SUITE_P(Variants, KdaStepTest,
                         testing::ValuesIn(kda_step_variants().begin(), kda_step_variants().end()),
                         [](const testing::TestParamInfo<KdaStepVariant>& variant) {
                             return std::string(tier_name(variant.param.tier));
                         });

TEST(KdaDecayTest, AgreesWithGoldenGates) {
    const KdaGateKernels& gates = *kernels_for(best_tier()).kda_gate;
    const test::GoldenFile& goldens = test::kernel_goldens();
    for (const char* shape : {"1x4x128x128", "24x4x32x32", "130x2x64x64"}) {
        SCOPED_TRACE(shape);
        const std::string prefix = std::string("kda.") + shape + ".";
        const auto raw = goldens.f32(prefix + "gate_raw");
        const auto a_log = goldens.f32(prefix + "a_log");
        const auto dt_bias = goldens.f32(prefix + "dt_bias");
        const auto bounded = goldens.f32(prefix + "g_bounded");
        const auto softplus = goldens.f32(prefix + "g_softplus");
        const int64_t heads = raw.dim(1), key_dim = raw.dim(2);
        std::vector<float> decay(static_cast<size_t>(key_dim));
        for (int64_t index = 0; index < raw.dim(0) * heads; ++index) {
            const int64_t h = index % heads;
            const float head_a_log = a_log.values[static_cast<size_t>(h)];
            const auto expect = [&](std::span<const float> g) {
                for (size_t i = 0; i < decay.size(); ++i) {
                    // g carries about five roundings, and e^g turns their sum into a relative error.
                    const double exact = std::exp(double{g[i]});
                    ASSERT_NEAR(decay[i], exact, exact * kRounding * (4.0 + 8.0 * std::abs(g[i])) + 1e-44);
                }
            };
            gates.bounded(raw.data() + index * key_dim, dt_bias.data() + h * key_dim, head_a_log, -5.0f,
                          key_dim, decay.data());
            expect(bounded.row(index, key_dim));
            gates.softplus(raw.data() + index * key_dim, dt_bias.data() + h * key_dim, head_a_log, key_dim,
                           decay.data());
            expect(softplus.row(index, key_dim));
        }
    }
}

TEST(KdaDecayTest, ExtremesStayBetweenZeroAndOne) {
    const KdaGateKernels& gates = *kernels_for(best_tier()).kda_gate;
    const std::vector<float> raw{-3e38f, -1e30f, -1e4f, -100.0f, -20.0f, -1e-30f, 0.0f,
                                 1e-30f, 19.9f,  20.1f, 100.0f,  1e4f,   1e30f,   3e38f};
    const std::vector<float> bias(raw.size(), 0.0f);
    const auto n = static_cast<int64_t>(raw.size());
    std::vector<float> decay(raw.size());
    for (const float a_log : {-20.0f, -3.0f, 0.0f, 3.0f, 20.0f}) {
        SCOPED_TRACE(a_log);
        gates.bounded(raw.data(), bias.data(), a_log, -5.0f, n, decay.data());
        for (const float value : decay) {
            EXPECT_GE(value, std::exp(-5.0f));
            EXPECT_LE(value, 1.0f);
        }
        EXPECT_FLOAT_EQ(decay.front(), 1.0f);
        EXPECT_FLOAT_EQ(decay.back(), std::exp(-5.0f));
        gates.softplus(raw.data(), bias.data(), a_log, n, decay.data());
        for (const float value : decay) {
            EXPECT_GE(value, 0.0f);
            EXPECT_LE(value, 1.0f);
        }
        EXPECT_EQ(decay.front(), 1.0f);
        EXPECT_EQ(decay.back(), 0.0f);
    }
}

}  // namespace
}  // namespace waste::kernels
