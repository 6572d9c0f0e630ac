// Sessions through the C interface: what they say alone they say interleaved, in parallel, gone back and restored.
#include <thread>

#include "tests/api/api_support.h"
#include "tests/support/converted.h"
#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

struct Said {
    std::vector<int32_t> tokens;
    std::vector<float> logits;

    bool operator==(const Said&) const = default;
};

Said said_by(const waste_session* session) {
    return {tokens_of(session), logits_of(session)};
}

/// Prompts longer than a block, then tokens drawn one by one.
constexpr size_t kPrompt = 100;
constexpr int kDrawn = 8;

Said say_alone(const waste_model* model, int32_t start, uint64_t seed) {
    const auto session = create_session(model);
    feed(session.get(), some_ids(kPrompt, start));
    for (int i = 0; i < kDrawn; i++) generate(session.get(), 1, seed);
    return said_by(session.get());
}

class ApiSession : public ::testing::TestWithParam<bool> {
  protected:
    waste_model_options options() const {
        auto out = small_options();
        if (GetParam()) out.budget_bytes = least_budget(converted_.directory());
        return out;
    }

    Converted converted_{defaults("demo-model")};
    ModelPointer model_ = open_model(converted_.directory(), options());
};

TEST_P(ApiSession, IsHeldAsTheBudgetAsks) {
    (void)say_alone(model_.get(), 1, 5);
    auto stats = sized<waste_stats>();
    ASSERT_EQ(waste_model_get_stats(model_.get(), &stats), WASTE_OK);
    EXPECT_EQ(stats.cache_slots > 0, GetParam());
    EXPECT_EQ(stats.drive_bytes > 0, GetParam());
    EXPECT_EQ(stats.usable_cache_slots, stats.cache_slots);
}

TEST_P(ApiSession, InterleavedEqualsApart) {
    const Said first = say_alone(model_.get(), 1, 5), second = say_alone(model_.get(), 2, 6);
    ASSERT_NE(first, second);
    const auto a = create_session(model_.get()), b = create_session(model_.get());
    feed(a.get(), some_ids(kPrompt, 1));
    feed(b.get(), some_ids(kPrompt, 2));
    for (int i = 0; i < kDrawn; i++) {
        generate(a.get(), 1, 5);
        generate(b.get(), 1, 6);
    }
    EXPECT_EQ(said_by(a.get()), first);
    EXPECT_EQ(said_by(b.get()), second);
}

TEST_P(ApiSession, ThreadsOnOneModelEqualApart) {
    const Said first = say_alone(model_.get(), 1, 5), second = say_alone(model_.get(), 2, 6);
    Said in_first, in_second;
    std::thread one([&] { in_first = say_alone(model_.get(), 1, 5); });
    std::thread other([&] { in_second = say_alone(model_.get(), 2, 6); });
    auto stats = sized<waste_stats>();
    auto info = sized<waste_model_info>();
    EXPECT_EQ(waste_model_get_stats(model_.get(), &stats), WASTE_OK);
    EXPECT_EQ(waste_model_get_info(model_.get(), &info), WASTE_OK);
    one.join();
    other.join();
    EXPECT_EQ(in_first, first);
    EXPECT_EQ(in_second, second);
}

TEST_P(ApiSession, MayBeUsedByAnotherThreadThanItsMaker) {
    const Said first = say_alone(model_.get(), 1, 5);
    const auto session = create_session(model_.get());
    feed(session.get(), some_ids(kPrompt, 1));
    std::thread([&] {
        for (int i = 0; i < kDrawn; i++) generate(session.get(), 1, 5);
    }).join();
    EXPECT_EQ(said_by(session.get()), first);
}

TEST_P(ApiSession, OutlivesTheModelsPointer) {
    const Said first = say_alone(model_.get(), 1, 5);
    const auto session = create_session(model_.get());
    model_.reset();
    feed(session.get(), some_ids(kPrompt, 1));
    for (int i = 0; i < kDrawn; i++) generate(session.get(), 1, 5);
    EXPECT_EQ(said_by(session.get()), first);
}

TEST_P(ApiSession, GoesOnFromAFileAndFromAnEarlierPosition) {
    const TempDir directory;
    const std::string path = directory.file("a.session");
    const auto session = create_session(model_.get());
    feed(session.get(), some_ids(kPrompt, 1));
    ASSERT_EQ(waste_session_save(session.get(), path.c_str(), nullptr), WASTE_OK) << waste_last_error();
    generate(session.get(), kDrawn, 5);
    const Said first = said_by(session.get());
    ASSERT_EQ(waste_session_rewind(session.get(), kPrompt, nullptr, nullptr, nullptr), WASTE_OK);
    generate(session.get(), kDrawn, 5);
    EXPECT_EQ(said_by(session.get()), first);
    const auto other = create_session(model_.get());
    ASSERT_EQ(waste_session_load(other.get(), path.c_str()), WASTE_OK) << waste_last_error();
    generate(other.get(), kDrawn, 5);
    EXPECT_EQ(said_by(other.get()), first);
}

INSTANTIATE_TEST_SUITE_P(, ApiSession, ::testing::Values(false, true),
                         [](const auto& held) { return held.param ? "Streamed" : "Mapped"; });

}  // namespace
}  // namespace waste::test
