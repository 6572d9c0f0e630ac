// Whole calls: the grid of chunks, cuts, several sequences, gates and betas, goldens.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/kda.h"
#include "kernels/kernel_set.h"
#include "tests/kernels/kda_oracle.h"
#include "tests/support/golden.h"
#include "tests/support/kernel_matrix.h"

namespace waste::kernels {
namespace {

using test::KdaTokens;

float any_decay(test::Random& random) {
    return std::exp(-random.uniform(0.0f, 5.0f));
}

/// One head's state and results, over any number of calls.
class HeadRun {
  public:
    HeadRun(Tier tier, const KdaTokens& tokens, std::vector<float> state)
        : kernels_(kernels_for(tier)),
          call_(tokens.call()),
          state_(call_.key_dim * call_.value_dim),
          out_(tokens.count * call_.out_stride),
          scratch_(kda_scratch_floats(call_.key_dim, call_.value_dim)) {
        std::copy(state.begin(), state.end(), state_.data());
        call_.states = state_.data();
        call_.out = out_.data();
    }

    KdaCall& call() { return call_; }

    /// The next `count` tokens.
    void feed(int64_t count, int64_t position) {
        const KdaSequence sequence{done_, count, position, 0};
        call_.sequences = {&sequence, 1};
        kda_run(kernels_, call_, scratch_.data());
        done_ += count;
    }

    std::span<const float> out() const { return out_.values(); }
    std::span<const float> state() const { return state_.values(); }
    bool guards_intact() const {
        return state_.guards_intact() && out_.guards_intact() && scratch_.guards_intact();
    }

  private:
    KernelSet kernels_;
    KdaCall call_;
    test::GuardedFloats state_;
    test::GuardedFloats out_;
    test::GuardedFloats scratch_;
    int64_t done_ = 0;
};

void expect_equal(const HeadRun& got, const HeadRun& expected) {
    EXPECT_EQ(test::first_difference(got.out(), expected.out()), "");
    EXPECT_EQ(test::first_difference(got.state(), expected.state()), "");
}

class KdaRunTest : public testing::TestWithParam<Tier> {
  protected:
    void SetUp() override {
        if (!tier_supported(GetParam())) GTEST_SKIP() << "this CPU has no " << tier_name(GetParam());
    }
};

struct Case {
    int64_t key_dim;
    int64_t value_dim;
    int64_t tokens;
    int64_t position;
};

constexpr Case kCases[] = {{1, 1, 130, 0},     {1, 33, 64, 64},   {33, 1, 100, 60},  {7, 5, 127, 1},
                           {16, 16, 63, 0},    {16, 31, 64, 0},   {31, 16, 65, 63},  {20, 48, 200, 37},
                           {48, 20, 128, 128}, {64, 64, 192, 64}, {128, 128, 70, 0}, {100, 130, 64, 0},
                           {130, 100, 64, 0}};

TEST_P(KdaRunTest, AgreesWithOracleAtAnyShape) {
    test::Random random(1);
    for (const Case& c : kCases) {
        SCOPED_TRACE(testing::Message() << "K " << c.key_dim << " V " << c.value_dim << ", " << c.tokens
                                        << " tokens at " << c.position);
        const KdaTokens tokens = test::random_kda_tokens(c.key_dim, c.value_dim, c.tokens, random, any_decay);
        const std::vector<float> state = random.normals(c.key_dim * c.value_dim, 1.0f);
        HeadRun run(GetParam(), tokens, state);
        run.feed(c.tokens, c.position);
        EXPECT_TRUE(run.guards_intact());
        test::KdaOracle oracle(tokens, state);
        oracle.run(c.tokens, c.position);
        EXPECT_EQ(oracle.difference(run.out(), run.state()), "");
    }
}

TEST_P(KdaRunTest, EqualsScalarBitForBit) {
    test::Random random(2);
    for (const Case& c : kCases) {
        SCOPED_TRACE(testing::Message() << "K " << c.key_dim << " V " << c.value_dim << ", " << c.tokens
                                        << " tokens at " << c.position);
        const KdaTokens tokens = test::random_kda_tokens(c.key_dim, c.value_dim, c.tokens, random, any_decay);
        const std::vector<float> state = random.normals(c.key_dim * c.value_dim, 1.0f);
        HeadRun run(GetParam(), tokens, state);
        HeadRun expected(Tier::scalar, tokens, state);
        run.feed(c.tokens, c.position);
        expected.feed(c.tokens, c.position);
        expect_equal(run, expected);
    }
}

TEST_P(KdaRunTest, CutsOnTheGridChangeNothing) {
    test::Random random(3);
    const KdaTokens tokens = test::random_kda_tokens(32, 40, 4096, random, any_decay);
    const std::vector<float> state = random.normals(32 * 40, 1.0f);
    HeadRun whole(GetParam(), tokens, state);
    whole.feed(4096, 0);
    for (const int64_t length : {64, 192, 1024}) {
        SCOPED_TRACE(length);
        HeadRun cut(GetParam(), tokens, state);
        for (int64_t begin = 0; begin < 4096; begin += length)
            cut.feed(std::min(length, 4096 - begin), begin);
        expect_equal(cut, whole);
    }
}

TEST_P(KdaRunTest, CutsOffTheGridOnlyDecideWhichChunksFill) {
    test::Random random(4);
    const KdaTokens tokens = test::random_kda_tokens(16, 24, 320, random, any_decay);
    const std::vector<float> state = random.normals(16 * 24, 1.0f);
    HeadRun whole(GetParam(), tokens, state);
    whole.feed(320, 32);
    HeadRun same_chunks(GetParam(), tokens, state);
    for (const auto& [count, position] : {std::pair<int64_t, int64_t>{11, 32}, {150, 43}, {159, 193}}) {
        same_chunks.feed(count, position);
    }
    // 43 + 150 = 193 leaves the chunk at 192 unfilled: all before it has the same bits, all after is near.
    const int64_t before = (192 - 32) * tokens.stride;
    EXPECT_EQ(test::first_difference(same_chunks.out().first(static_cast<size_t>(before)),
                                     whole.out().first(static_cast<size_t>(before))),
              "");
    test::KdaOracle oracle(tokens, state);
    oracle.run(11, 32);
    oracle.run(150, 43);
    oracle.run(159, 193);
    EXPECT_EQ(oracle.difference(same_chunks.out(), same_chunks.state()), "");
}

TEST_P(KdaRunTest, OneCallManyCallsAndSingleTokensStayWithinTheBound) {
    test::Random random(5);
    for (const auto& [key_dim, value_dim, count] :
         {std::tuple<int64_t, int64_t, int64_t>{32, 24, 4096}, {24, 56, 1000}}) {
        const KdaTokens tokens = test::random_kda_tokens(key_dim, value_dim, count, random, any_decay);
        const std::vector<float> state(static_cast<size_t>(key_dim * value_dim), 0.0f);
        for (const int64_t length : {count, int64_t{100}, int64_t{7}, int64_t{1}}) {
            SCOPED_TRACE(testing::Message() << count << " tokens in calls of " << length);
            HeadRun run(GetParam(), tokens, state);
            test::KdaOracle oracle(tokens, state);
            for (int64_t begin = 0; begin < count; begin += length) {
                run.feed(std::min(length, count - begin), begin);
                oracle.run(std::min(length, count - begin), begin);
            }
            EXPECT_EQ(oracle.difference(run.out(), run.state()), "");
        }
    }
}

TEST_P(KdaRunTest, SequencesOfOneCallEqualSeparateCalls) {
    test::Random random(6);
    const KdaTokens tokens = test::random_kda_tokens(48, 20, 400, random, any_decay);
    const KdaSequence sequences[] = {
        {0, 1, 17, 3}, {1, 0, 64, 0}, {1, 200, 30, 1}, {201, 64, 128, 4}, {390, 10, 0, 2}};
    const int64_t slot = 48 * 20 + 5;
    const std::vector<float> states = random.normals(5 * slot, 1.0f);
    const KernelSet kernels = kernels_for(GetParam());
    std::vector<float> scratch(static_cast<size_t>(kda_scratch_floats(48, 20)));
    const auto run = [&](std::span<const std::span<const KdaSequence>> calls) {
        std::vector<float> pool = states;
        std::vector<float> out(static_cast<size_t>(400 * tokens.stride), -1.0f);
        KdaCall call = tokens.call();
        call.states = pool.data();
        call.slot_stride = slot;
        call.out = out.data();
        for (const auto& of_call : calls) {
            call.sequences = of_call;
            kda_run(kernels, call, scratch.data());
        }
        out.insert(out.end(), pool.begin(), pool.end());
        return out;
    };
    const std::span<const KdaSequence> all(sequences);
    const std::vector<float> together = run(std::vector{all});
    EXPECT_EQ(test::first_difference(together,
                                     run(std::vector{all.subspan(3), all.subspan(0, 2), all.subspan(2, 1)})),
              "");
    // The empty sequence's slot is as it was.
    const auto pool = std::span<const float>(together).last(static_cast<size_t>(5 * slot));
    EXPECT_EQ(test::first_difference(pool.first(static_cast<size_t>(slot)),
                                     std::span(states).first(static_cast<size_t>(slot))),
              "");
}

TEST_P(KdaRunTest, OutMayBeV) {
    test::Random random(7);
    for (const int64_t value_dim : {32, 50}) {
        KdaTokens tokens = test::random_kda_tokens(16, value_dim, 90, random, any_decay);
        const std::vector<float> state = random.normals(16 * value_dim, 1.0f);
        HeadRun expected(GetParam(), tokens, state);
        expected.feed(90, 0);
        HeadRun run(GetParam(), tokens, state);
        run.call().out = tokens.v.data();
        run.feed(90, 0);
        EXPECT_EQ(test::first_difference(run.state(), expected.state()), "");
        for (int64_t i = 0; i < 90 * tokens.stride; ++i) {
            if (i % tokens.stride >= value_dim) continue;
            ASSERT_EQ(tokens.v[static_cast<size_t>(i)], expected.out()[static_cast<size_t>(i)]);
        }
    }
}

TEST_P(KdaRunTest, GatesAndBetasAreActivatedAsTheirKernelsDo) {
    test::Random random(8);
    const KernelSet kernels = kernels_for(GetParam());
    for (const int64_t key_dim : {16, 21}) {
        KdaTokens tokens = test::random_kda_tokens(key_dim, 18, 150, random, any_decay);
        KdaTokens raw = tokens;
        raw.decay = random.normals(150 * tokens.stride, 3.0f);
        raw.beta = random.normals(150, 3.0f);
        const std::vector<float> dt_bias = random.normals(key_dim, 1.0f);
        kernels.activation->sigmoid(raw.beta.data(), 150, tokens.beta.data());
        for (const KdaGate form : {KdaGate::bounded, KdaGate::softplus}) {
            for (int64_t t = 0; t < 150; ++t) {
                const float* gate = raw.decay.data() + t * tokens.stride;
                float* decay = tokens.decay.data() + t * tokens.stride;
                if (form == KdaGate::bounded) {
                    kernels.kda_gate->bounded(gate, dt_bias.data(), 0.5f, -5.0f, key_dim, decay);
                } else {
                    kernels.kda_gate->softplus(gate, dt_bias.data(), 0.5f, key_dim, decay);
                }
            }
            const std::vector<float> state = random.normals(key_dim * 18, 1.0f);
            HeadRun expected(GetParam(), tokens, state);
            expected.feed(150, 50);
            HeadRun run(GetParam(), raw, state);
            run.call().gate_form = form;
            run.call().dt_bias = dt_bias.data();
            run.call().a_log = 0.5f;
            run.call().lower_bound = -5.0f;
            run.call().beta_is_logit = true;
            run.feed(150, 50);
            expect_equal(run, expected);
        }
    }
}

TEST_P(KdaRunTest, AThousandTokensAtTheLowerBound) {
    test::Random random(9);
    KdaTokens tokens = test::random_kda_tokens(64, 48, 1000, random, any_decay);
    KdaTokens raw = tokens;
    std::fill(tokens.decay.begin(), tokens.decay.end(), std::exp(-5.0f));
    std::fill(raw.decay.begin(), raw.decay.end(), 1e4f);
    const std::vector<float> dt_bias(64, 0.0f);
    const std::vector<float> state = random.normals(64 * 48, 1.0f);
    HeadRun run(GetParam(), raw, state);
    run.call().gate_form = KdaGate::bounded;
    run.call().dt_bias = dt_bias.data();
    run.call().lower_bound = -5.0f;
    run.feed(1000, 0);
    test::KdaOracle oracle(tokens, state);
    oracle.run(1000, 0);
    EXPECT_EQ(oracle.difference(run.out(), run.state()), "");
}

TEST_P(KdaRunTest, ExtremeSoftplusGatesStayFinite) {
    test::Random random(10);
    const std::vector<float> dt_bias(32, 0.0f);
    for (const float a_log : {-20.0f, 0.0f, 9.2f, 20.0f, 80.0f}) {
        SCOPED_TRACE(a_log);
        KdaTokens tokens = test::random_kda_tokens(32, 48, 256, random, [](test::Random& source) {
            constexpr float kRaw[] = {-1e30f, -1e4f, -20.0f, 0.0f, 1.0f, 20.0f, 1e4f, 1e30f};
            return kRaw[source.bits() % 8];
        });
        HeadRun run(GetParam(), tokens, random.normals(32 * 48, 1.0f));
        run.call().gate_form = KdaGate::softplus;
        run.call().dt_bias = dt_bias.data();
        run.call().a_log = a_log;
        run.feed(256, 0);
        for (const float value : run.out()) ASSERT_TRUE(std::isfinite(value));
        for (const float value : run.state()) ASSERT_TRUE(std::isfinite(value));
    }
}

/// Raw projections in, over all heads of a golden sequence that begins at `position`.
void expect_golden(Tier tier, const std::string& shape_name, bool bounded, int64_t position) {
    const KernelSet kernels = kernels_for(tier);
    const test::GoldenFile& goldens = test::kernel_goldens();
    const std::string prefix = "kda." + shape_name + ".";
    auto q = goldens.f32(prefix + "q");
    auto k = goldens.f32(prefix + "k");
    const auto v = goldens.f32(prefix + "v");
    const auto gate = goldens.f32(prefix + "gate_raw");
    const auto beta = goldens.f32(prefix + "beta_raw");
    const auto a_log = goldens.f32(prefix + "a_log");
    const auto dt_bias = goldens.f32(prefix + "dt_bias");
    const std::string suffix = bounded ? "bounded" : "softplus";
    std::vector<float> state = goldens.f32(prefix + "state0").values;
    const int64_t tokens = q.dim(0), heads = q.dim(1), key_dim = q.dim(2), value_dim = v.dim(2);
    ASSERT_EQ(key_dim, value_dim);
    for (int64_t i = 0; i < tokens * heads; ++i) {
        float* q_row = q.values.data() + i * key_dim;
        float* k_row = k.values.data() + i * key_dim;
        kernels.norm->l2_norm(q_row, 1.0f / std::sqrt(static_cast<float>(key_dim)), key_dim, q_row);
        kernels.norm->l2_norm(k_row, 1.0f, key_dim, k_row);
    }
    std::vector<float> out(v.values.size());
    std::vector<float> scratch(static_cast<size_t>(kda_scratch_floats(key_dim, value_dim)));
    const KdaSequence sequence{0, tokens, position, 0};
    for (int64_t h = 0; h < heads; ++h) {
        KdaCall call{};
        call.key_dim = key_dim;
        call.value_dim = value_dim;
        call.q = q.data() + h * key_dim;
        call.k = k.data() + h * key_dim;
        call.v = v.data() + h * value_dim;
        call.gate = gate.data() + h * key_dim;
        call.stride = call.out_stride = heads * key_dim;
        call.beta = beta.data() + h;
        call.beta_stride = heads;
        call.beta_is_logit = true;
        call.gate_form = bounded ? KdaGate::bounded : KdaGate::softplus;
        call.dt_bias = dt_bias.data() + h * key_dim;
        call.a_log = a_log.values[static_cast<size_t>(h)];
        call.lower_bound = -5.0f;
        call.states = state.data() + h * key_dim * value_dim;
        call.sequences = {&sequence, 1};
        call.out = out.data() + h * value_dim;
        kda_run(kernels, call, scratch.data());
    }
    EXPECT_LT(test::relative_error(out, goldens.f32(prefix + "o_" + suffix).values), 5e-6);
    EXPECT_LT(test::relative_error(state, goldens.f32(prefix + "state1_" + suffix).values), 5e-6);
}

TEST_P(KdaRunTest, AgreesWithGoldens) {
    for (const char* shape : {"1x4x128x128", "24x4x32x32", "64x8x128x128", "130x2x64x64"}) {
        for (const int64_t position : {0, 50}) {
            SCOPED_TRACE(testing::Message() << shape << " at " << position);
            expect_golden(GetParam(), shape, true, position);
            expect_golden(GetParam(), shape, false, position);
        }
    }
}

std::vector<Tier> chunk_tiers() {
    std::vector<Tier> tiers;
    for (const KdaChunkVariant& variant : kda_chunk_variants()) tiers.push_back(variant.tier);
    return tiers;
}

INSTANTIATE_TEST_SUITE_P(Tiers, KdaRunTest, testing::ValuesIn(chunk_tiers()),
                         [](const testing::TestParamInfo<Tier>& tier) {
                             return std::string(tier_name(tier.param));
                         });

}  // namespace
}  // namespace waste::kernels
