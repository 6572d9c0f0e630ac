// The trained demo model against the figures its card gives (tests/data/demo-model/MODEL_CARD.md,
// expected.json).
#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "engine/evaluate.h"
#include "engine/generate.h"
#include "engine/text/tokenizer.h"
#include "tests/support/converted.h"
#include "tests/support/golden.h"

namespace waste::test {
namespace {

using engine::Compute;
using engine::Session;
using engine::SessionOptions;
using nlohmann::json;

const std::string kDemo = std::string(WASTE_TEST_DATA) + "/demo-model/";

json read_json(const std::string& name) {
    std::ifstream file(kDemo + name);
    return json::parse(file);
}

std::string read_file(const std::string& name) {
    std::ifstream file(kDemo + name, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

Session open(const engine::Model& model, Compute compute, int64_t context_length) {
    SessionOptions options;
    options.compute = compute;
    options.context_length = context_length;
    auto session = Session::create(model, options);
    if (!session) throw std::runtime_error(session.error().text());
    return std::move(*session);
}

/// Loss over the first windows of the held-out text, by the card's definition.
double loss_of(const engine::Model& model, Compute compute, int64_t window = 512, int64_t windows = 8) {
    const auto ranks = model.container().carried_file("tiktoken.model");
    const auto specials = model.container().carried_file("tokenizer_config.json");
    const auto tokenizer = engine::Tokenizer::create(*ranks, *specials, model.config().vocab_size, "demo");
    const auto ids = tokenizer->encode(read_file("heldout.txt"));
    if (!ids) throw std::runtime_error(ids.error().text());
    Session session = open(model, compute, window);
    const auto result = engine::measure_perplexity(session, *ids, {window, window, windows},
                                                   [](int64_t, int64_t) { return true; });
    if (!result) throw std::runtime_error(result.error().text());
    return result->loss;
}

TEST(Demo, LosslessLossIsTheCards) {
    const Converted converted(lossless("demo-model"));
    const double expected = read_json("expected.json")["heldout"]["first_8_windows_loss"];
    EXPECT_NEAR(loss_of(converted.model(), Compute::f32), expected, 2e-6);
}

// Errors of a recurrent state that short windows forgive would add up here.
TEST(Demo, LossOverALongRunIsTheTraces) {
    const Converted converted(lossless("demo-model"));
    const double expected = read_json("routing_trace.json")["mean_nll"][0];
    EXPECT_NEAR(loss_of(converted.model(), Compute::f32, 2048, 1), expected, 2e-6);
}

TEST(Demo, DefaultContainerCostsUnderTwoPercent) {
    const Converted converted(defaults("demo-model"));
    const double expected = read_json("expected.json")["heldout"]["first_8_windows_loss"];
    const double ratio = std::exp(loss_of(converted.model(), Compute::int8) - expected);
    EXPECT_LT(ratio, 1.02);
    EXPECT_GT(ratio, 0.99);
}

TEST(Demo, EightBitTrunkCostsUnderThreePerMille) {
    engine::ConvertOptions options = defaults("demo-model");
    options.trunk = engine::TrunkRecipe::q8;
    const Converted converted(options);
    const double expected = read_json("expected.json")["heldout"]["first_8_windows_loss"];
    const double ratio = std::exp(loss_of(converted.model(), Compute::int8) - expected);
    EXPECT_LT(ratio, 1.003);
    EXPECT_GT(ratio, 0.997);
}

TEST(Demo, GreedyTokensAreTheCards) {
    const Converted converted(lossless("demo-model"));
    for (const json& prompt : read_json("expected.json")["prompts"]) {
        const auto ids = prompt["prompt_ids"].get<std::vector<int32_t>>();
        const auto expected = prompt["greedy_ids"].get<std::vector<int32_t>>();
        Session session = open(converted.model(), Compute::f32, 256);
        ASSERT_TRUE(session.feed(ids));
        engine::GenerateOptions options;
        options.max_tokens = static_cast<int64_t>(expected.size());
        engine::SamplerOptions greedy;
        greedy.temperature = 0;
        session.set_sampler(greedy);
        const auto generation =
            engine::generate(session, options, [](int32_t) { return engine::OnTokenAnswer::keep_going; });
        ASSERT_FALSE(generation.error) << generation.error->text();
        EXPECT_EQ(generation.ids, expected) << prompt["prompt"];
    }
}

TEST(Demo, FullLogitRowsAreTheReferences) {
    const Converted converted(lossless("demo-model"));
    const auto ids = read_json("expected.json")["prompts"][2]["prompt_ids"].get<std::vector<int32_t>>();
    const std::string bytes = read_file("expected_logits.f32");
    std::vector<float> expected(bytes.size() / sizeof(float));
    std::memcpy(expected.data(), bytes.data(), bytes.size());
    const auto vocab = static_cast<size_t>(converted.model().config().vocab_size);
    ASSERT_EQ(expected.size(), ids.size() * vocab);
    Session session = open(converted.model(), Compute::f32, 64);
    const auto fed = session.feed(ids, [&](int64_t position, std::span<const float> logits) {
        const auto row = std::span(expected).subspan(static_cast<size_t>(position) * vocab, vocab);
        EXPECT_LE(relative_error(logits, row), 5e-5) << "position " << position;
    });
    ASSERT_TRUE(fed) << fed.error().text();
}

/// Compares routing with the card's; a set may differ only where the deciding margin is tiny.
class RoutingCheck : public engine::Trace {
  public:
    explicit RoutingCheck(json expected) : expected_(std::move(expected)) {}

    void on_vector(engine::TracePoint, int64_t, int64_t, std::span<const float>) override {}
    void on_router(int64_t layer, int64_t, std::span<const int32_t> ids, std::span<const float>, float,
                   std::span<const float>) override {
        const auto row = static_cast<size_t>(layer - 1);
        std::vector<int32_t> sorted(ids.begin(), ids.end());
        std::sort(sorted.begin(), sorted.end());
        compared++;
        if (sorted == expected_["experts"][token][row].get<std::vector<int32_t>>()) return;
        flips++;
        EXPECT_LT(expected_["margin"][token][row].get<double>(), 1e-5)
            << "token " << token << " layer " << layer;
    }

    size_t token = 0;
    int compared = 0, flips = 0;

  private:
    json expected_;
};

TEST(Demo, RoutingIsTheCards) {
    const Converted converted(lossless("demo-model"));
    const json routing = read_json("routing.json");
    const auto ids = routing["token_ids"].get<std::vector<int32_t>>();
    RoutingCheck check(routing);
    Session session = open(converted.model(), Compute::f32, static_cast<int64_t>(ids.size()));
    session.set_trace(&check);
    for (; check.token < ids.size(); check.token++) ASSERT_TRUE(session.feed({&ids[check.token], 1}));
    EXPECT_EQ(check.compared, 768 * 8);
    EXPECT_LE(check.flips, 2);
}

}  // namespace
}  // namespace waste::test
