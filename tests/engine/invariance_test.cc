// What must not change a single bit: thread count, tier, and how a prompt is cut into feeds.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/session.h"
#include "tests/support/converted.h"

namespace waste::test {
namespace {

using engine::Compute;
using engine::Session;
using engine::SessionOptions;
using kernels::Tier;

constexpr int64_t kTokens = 24;

std::vector<int32_t> arbitrary_ids(int64_t vocab_size) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < kTokens; i++) ids.push_back(static_cast<int32_t>((7 + 61 * i) % vocab_size));
    return ids;
}

/// Logits after every token, as bits.
std::vector<uint32_t> run(const engine::Model& model, const SessionOptions& options, size_t piece) {
    auto session = Session::create(model, options);
    if (!session) throw std::runtime_error(session.error().text());
    const std::vector<int32_t> ids = arbitrary_ids(model.config().vocab_size);
    std::vector<uint32_t> bits;
    for (size_t at = 0; at < ids.size(); at += piece) {
        const auto part = std::span(ids).subspan(at, std::min(piece, ids.size() - at));
        const auto fed = session->feed(part, [&](int64_t, std::span<const float> logits) {
            const size_t begin = bits.size();
            bits.resize(begin + logits.size());
            std::memcpy(bits.data() + begin, logits.data(), logits.size_bytes());
            return true;
        });
        if (!fed) throw std::runtime_error(fed.error().text());
    }
    return bits;
}

struct Case {
    std::string checkpoint;
    Compute compute;
};

void PrintTo(const Case& test, std::ostream* out) {
    *out << test.checkpoint << (test.compute == Compute::f32 ? " in f32" : " in int8");
}

class Invariance : public ::testing::TestWithParam<Case> {
  protected:
    SessionOptions options(int threads, Tier tier) const {
        SessionOptions out;
        out.context_length = kTokens;
        out.compute = GetParam().compute;
        out.threads = threads;
        out.tier = tier;
        return out;
    }
    Converted converted_{defaults(GetParam().checkpoint)};
};

TEST_P(Invariance, ThreadCount) {
    const Tier tier = kernels::best_tier();
    const auto one = run(converted_.model(), options(1, tier), kTokens);
    for (const int threads : {2, 3}) {
        EXPECT_EQ(run(converted_.model(), options(threads, tier), kTokens), one) << threads << " threads";
    }
}

TEST_P(Invariance, PromptAtOnceOrTokenByToken) {
    const auto whole = run(converted_.model(), options(2, kernels::best_tier()), kTokens);
    for (const size_t piece : {size_t{1}, size_t{7}}) {
        EXPECT_EQ(run(converted_.model(), options(2, kernels::best_tier()), piece), whole)
            << "pieces of " << piece;
    }
}

TEST_P(Invariance, Tier) {
    const auto scalar = run(converted_.model(), options(2, Tier::scalar), kTokens);
    for (const Tier tier : kernels::supported_tiers()) {
        EXPECT_EQ(run(converted_.model(), options(2, tier), kTokens), scalar) << kernels::tier_name(tier);
    }
}

TEST_P(Invariance, ClearedSessionIsNew) {
    const SessionOptions two = options(2, kernels::best_tier());
    auto session = Session::create(converted_.model(), two);
    ASSERT_TRUE(session) << session.error().text();
    const auto ids = arbitrary_ids(converted_.model().config().vocab_size);
    ASSERT_TRUE(session->feed(ids));
    const std::vector<float> first(session->logits().begin(), session->logits().end());
    session->clear();
    ASSERT_TRUE(session->feed(ids));
    EXPECT_EQ(std::vector<float>(session->logits().begin(), session->logits().end()), first);
}

std::vector<Case> cases() {
    std::vector<Case> out;
    for (const char* checkpoint : {"tiny-k3", "odd-k3", "tiny-kimi-linear"}) {
        for (const Compute compute : {Compute::int8, Compute::f32}) out.push_back({checkpoint, compute});
    }
    return out;
}

INSTANTIATE_TEST_SUITE_P(, Invariance, ::testing::ValuesIn(cases()), [](const auto& test) {
    std::string name = test.param.checkpoint + (test.param.compute == Compute::f32 ? "_f32" : "_int8");
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
});

}  // namespace
}  // namespace waste::test
