#include "engine/generate.h"

#include <gtest/gtest.h>

#include <cmath>

#include "engine/evaluate.h"
#include "tests/support/converted.h"

namespace waste::test {
namespace {

using engine::GenerateOptions;
using engine::OnTokenAnswer;
using engine::Session;
using engine::SessionOptions;
using engine::StopReason;
using engine::StopStrings;

TEST(StopStrings, FoundAcrossPieces) {
    StopStrings stops({"END"});
    EXPECT_EQ(stops.push("one E"), "one ");
    EXPECT_EQ(stops.push("N"), "");
    EXPECT_EQ(stops.push("D two"), "");
    EXPECT_TRUE(stops.found());
    EXPECT_EQ(stops.push("more"), "");
    EXPECT_EQ(stops.finish(), "");
}

TEST(StopStrings, HeldTextComesBackWhereItWasNoStop) {
    StopStrings stops({"END", "NEXT"});
    EXPECT_EQ(stops.push("an E"), "an ");
    EXPECT_EQ(stops.push("N"), "");
    EXPECT_EQ(stops.push("E"), "E");  // "NE" may still become NEXT
    EXPECT_EQ(stops.finish(), "NE");
    EXPECT_FALSE(stops.found());
}

TEST(StopStrings, TheEarliestWins) {
    StopStrings stops({"bb", "a"});
    EXPECT_EQ(stops.push("xxabb"), "xx");
    EXPECT_TRUE(stops.found());
}

TEST(StopStrings, NoneGiven) {
    StopStrings stops({});
    EXPECT_EQ(stops.push("all of it"), "all of it");
    EXPECT_EQ(stops.finish(), "");
}

class Generate : public ::testing::Test {
  protected:
    Session open(int64_t context_length) {
        SessionOptions options;
        options.context_length = context_length;
        auto session = Session::create(converted_.model(), options);
        if (!session) throw std::runtime_error(session.error().text());
        return std::move(*session);
    }
    /// Ten greedy tokens or fewer, after ids 5, 6, 7.
    engine::Generation run(GenerateOptions options, int64_t context_length = 64) {
        Session session = open(context_length);
        EXPECT_TRUE(session.feed(prompt_));
        engine::SamplerOptions greedy;
        greedy.temperature = 0;
        session.set_sampler(greedy);
        auto generation =
            engine::generate(session, options, [](int32_t) { return OnTokenAnswer::keep_going; });
        if (generation.error) throw std::runtime_error(generation.error->text());
        return generation;
    }
    const std::vector<int32_t> prompt_{5, 6, 7};
    Converted converted_{defaults("tiny-kimi-linear")};
};

TEST_F(Generate, EndsAtTheLength) {
    GenerateOptions options;
    options.max_tokens = 10;
    const auto generation = run(options);
    EXPECT_EQ(generation.ids.size(), 10u);
    EXPECT_EQ(generation.reason, StopReason::length);
}

TEST_F(Generate, EndsWithTheContextFull) {
    const auto generation = run({}, 8);
    EXPECT_EQ(generation.reason, StopReason::context);
    EXPECT_EQ(generation.ids.size(), 5u);  // three of the prompt and five more
}

TEST_F(Generate, StopTokenIsNotPartOfTheText) {
    GenerateOptions options;
    options.max_tokens = 10;
    const auto whole = run(options).ids;
    options.stop_ids = {whole[4]};
    const auto generation = run(options);
    EXPECT_EQ(generation.reason, StopReason::stop_token);
    const auto first = std::find(whole.begin(), whole.end(), whole[4]);
    EXPECT_EQ(generation.ids, std::vector<int32_t>(whole.begin(), first));
}

TEST_F(Generate, CallerMayStop) {
    Session session = open(64);
    ASSERT_TRUE(session.feed(prompt_));
    int seen = 0;
    const auto generation = engine::generate(session, {}, [&seen](int32_t) {
        return ++seen == 3 ? OnTokenAnswer::interrupt : OnTokenAnswer::keep_going;
    });
    EXPECT_EQ(generation.reason, StopReason::interrupted);
    EXPECT_EQ(generation.ids.size(), 3u);
}

TEST_F(Generate, SeedDecides) {
    const auto draw = [&](uint64_t seed) {
        Session session = open(64);
        EXPECT_TRUE(session.feed(prompt_));
        GenerateOptions options;
        options.max_tokens = 12;
        engine::SamplerOptions sampler;
        sampler.seed = seed;
        session.set_sampler(sampler);
        return engine::generate(session, options, [](int32_t) { return OnTokenAnswer::keep_going; }).ids;
    };
    EXPECT_EQ(draw(1), draw(1));
    EXPECT_NE(draw(1), draw(2));
}

TEST_F(Generate, SessionRefusesWhatItCannotHold) {
    Session session = open(4);
    const std::vector<int32_t> five{1, 2, 3, 4, 5};
    const auto too_long = session.feed(five);
    ASSERT_FALSE(too_long);
    EXPECT_EQ(too_long.error().kind, ErrorKind::capacity);
    EXPECT_EQ(session.position(), 0);
    for (const int32_t bad : {-1, 512}) {
        const auto refused = session.feed({&bad, 1});
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().kind, ErrorKind::invalid);
    }
    EXPECT_TRUE(session.feed(std::span(five).first(4)));
}

TEST_F(Generate, SessionOptionsAreChecked) {
    SessionOptions options;
    options.context_length = 0;
    EXPECT_FALSE(Session::create(converted_.model(), options));
    options.context_length = converted_.model().config().max_context + 1;
    EXPECT_FALSE(Session::create(converted_.model(), options));
    options.context_length = 8;
    options.threads = 0;
    EXPECT_FALSE(Session::create(converted_.model(), options));
}

TEST(Evaluate, LikeliestAreSortedAndSumToOne) {
    const std::vector<float> logits{0.0f, 2.0f, 2.0f, -1.0f};
    const auto top = engine::likeliest(logits, 10);
    ASSERT_EQ(top.size(), 4u);
    EXPECT_EQ(top[0].id, 1);  // ties: the lower id first
    EXPECT_EQ(top[1].id, 2);
    double sum = 0;
    for (const auto& token : top) sum += token.probability;
    EXPECT_NEAR(sum, 1.0, 1e-12);
    EXPECT_NEAR(engine::negative_log_likelihood(logits, 3), -std::log(top[3].probability), 1e-12);
}

/// Perplexity by hand: every token scored once by the first window that holds it and something before it.
TEST_F(Generate, PerplexityFollowsItsDefinition) {
    std::vector<int32_t> ids;
    for (int32_t i = 0; i < 30; i++) ids.push_back(3 + i * 37 % 500);
    const auto nll = [&](int64_t begin, int64_t from, int64_t end) {
        Session session = open(64);
        double sum = 0;
        const auto window =
            std::span(ids).subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin));
        EXPECT_TRUE(session.feed(window, [&](int64_t position, std::span<const float> logits) {
            const int64_t next = begin + position + 1;
            if (next < end && next >= from) {
                sum += engine::negative_log_likelihood(logits, ids[static_cast<size_t>(next)]);
            }
        }));
        return sum;
    };
    Session session = open(64);
    const auto go_on = [](int64_t, int64_t) { return true; };

    const auto separate = engine::measure_perplexity(session, ids, {10, 10, 0}, go_on);
    ASSERT_TRUE(separate);
    EXPECT_EQ(separate->scored_tokens, 27);
    EXPECT_EQ(separate->window_nll, (std::vector<double>{nll(0, 1, 10), nll(10, 11, 20), nll(20, 21, 30)}));

    const auto overlapping = engine::measure_perplexity(session, ids, {10, 6, 0}, go_on);
    ASSERT_TRUE(overlapping);
    EXPECT_EQ(overlapping->window_nll,
              (std::vector<double>{nll(0, 1, 10), nll(6, 10, 16), nll(12, 16, 22), nll(18, 22, 28)}));
    EXPECT_EQ(overlapping->scored_tokens, 27);
    EXPECT_NEAR(overlapping->perplexity, std::exp(overlapping->loss), 1e-12);

    EXPECT_FALSE(engine::measure_perplexity(session, ids, {31, 31, 0}, go_on));
    EXPECT_FALSE(engine::measure_perplexity(session, ids, {10, 0, 0}, go_on));
    EXPECT_FALSE(
        engine::measure_perplexity(session, ids, {10, 10, 0}, [](int64_t, int64_t) { return false; }));
}

}  // namespace
}  // namespace waste::test
