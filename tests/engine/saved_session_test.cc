// A session that was saved and loaded, or that went back, must go on as if it had never stopped or strayed: bit for bit.
#include <gtest/gtest.h>

#include <string>

#include "container/file.h"
#include "tests/support/converted.h"
#include "tests/support/sessions.h"

namespace waste::test {
namespace {

using engine::Arrangement;
using engine::Model;
using engine::Session;
using engine::SessionOptions;
using engine::TurnRole;

constexpr int64_t kChunk = kernels::kKdaChunk;

class SavedSessions : public ::testing::TestWithParam<std::string> {
  protected:
    const Model& model() const { return converted_.model(); }
    std::string file(const std::string& name = "a.session") const { return directory_.file(name); }

    TempDir directory_;
    Converted converted_{defaults(GetParam())};
};

TEST_P(SavedSessions, GoOnAsIfNeverStopped) {
    constexpr int64_t kLong = 1000, kAfter = 70;  // crosses the grid of chunks
    for (const int64_t position : {int64_t{1}, kChunk - 1, kChunk, kChunk + 1, kLong}) {
        for (const float temperature : {0.0f, 1.0f}) {
            if (position == kLong && temperature == 0) continue;  // says no more than the others
            const auto prompt = arbitrary_ids(model(), position);
            Session unbroken = open(model(), options_for(1200));
            unbroken.set_sampler(drawing(temperature, 11));
            feed(unbroken, prompt);
            const auto expected = generate(unbroken, kAfter);

            Session before = open(model(), options_for(1100, 1));
            before.set_sampler(drawing(temperature, 11));
            feed(before, prompt);
            auto ids = generate(before, 3);
            save(before, file());
            Session after = open(model(), options_for(1200, 3));
            load(after, file());
            ASSERT_EQ(after.position(), position + 3);
            EXPECT_TRUE(same_bits(after.logits(), before.logits()));
            const auto rest = generate(after, kAfter - 3);
            ids.insert(ids.end(), rest.begin(), rest.end());
            EXPECT_EQ(ids, expected) << position << " tokens, temperature " << temperature;
            EXPECT_TRUE(same_bits(after.logits(), unbroken.logits())) << position;
            EXPECT_TRUE(container::remove_file(file()));
        }
    }
}

TEST_P(SavedSessions, GoOnWhereExpertsAreHeldInAnotherWay) {
    const auto ids = arbitrary_ids(model(), 200);
    Session unbroken = open(model(), options_for(300));
    feed(unbroken, std::span(ids).first(130));
    feed(unbroken, std::span(ids).subspan(130));
    Session before = open(model(), options_for(300));
    feed(before, std::span(ids).first(130));
    save(before, file());

    auto streaming = Model::open(converted_.directory());
    ASSERT_TRUE(streaming);
    Arrangement arrangement;
    arrangement.experts.slots = 2 * model().config().num_experts_per_token;
    ASSERT_TRUE(streaming->arrange(arrangement));
    Session after = open(*streaming, options_for(300));
    load(after, file());
    feed(after, std::span(ids).subspan(130));
    EXPECT_TRUE(same_bits(after.logits(), unbroken.logits()));
}

TEST_P(SavedSessions, GoOnOnEveryTier) {
    const auto ids = arbitrary_ids(model(), 2 * kChunk + 20);
    const size_t cut = kChunk + 7;
    for (const kernels::Tier tier : kernels::supported_tiers()) {
        SessionOptions options = options_for(200);
        options.tier = tier;
        Session unbroken = open(model(), options), before = open(model(), options),
                after = open(model(), options);
        for (Session* session : {&unbroken, &before}) feed(*session, std::span(ids).first(cut));
        save(before, file());
        load(after, file());
        for (Session* session : {&unbroken, &after}) feed(*session, std::span(ids).subspan(cut));
        EXPECT_TRUE(same_bits(after.logits(), unbroken.logits())) << kernels::tier_name(tier);
        ASSERT_TRUE(container::remove_file(file()));
    }
}

TEST_P(SavedSessions, TwoOnOneModelDoNotTouchEachOther) {
    const auto one = arbitrary_ids(model(), 100), two = arbitrary_ids(model(), 100, 3);
    const auto alone = [&](const std::vector<int32_t>& ids) {
        Session session = open(model(), options_for(120));
        for (const int32_t id : ids) feed(session, {&id, 1});
        return logits_of(session);
    };
    Session first = open(model(), options_for(120)), second = open(model(), options_for(120));
    for (size_t i = 0; i < one.size(); i++) {
        feed(first, {&one[i], 1});
        feed(second, {&two[i], 1});
    }
    EXPECT_TRUE(same_bits(first.logits(), alone(one)));
    EXPECT_TRUE(same_bits(second.logits(), alone(two)));
}

/// Ten turns of a user and a model: prompts of unequal lengths in one feed each, answers token by token.
class Chat {
  public:
    static constexpr int kTurns = 10;
    explicit Chat(const Model& model) : model_(model) {}

    void user(Session& session, int turn, int64_t variant = 0) const {
        session.begin_turn(TurnRole::user);
        feed(session, arbitrary_ids(model_, 5 + 37 * (turn % 4), 11 * turn + variant));
    }
    static void assistant(Session& session) {
        session.begin_turn(TurnRole::assistant);
        generate(session, 8);
    }
    void talk(Session& session, int from, int to) const {
        for (int turn = from; turn < to; turn++) {
            user(session, turn);
            assistant(session);
        }
    }

  private:
    const Model& model_;
};

TEST_P(SavedSessions, GoBackToEveryTurn) {
    const Chat chat(model());
    constexpr int kCheckpoints[] = {0, 3, 32};
    std::vector<Session> straying;
    for (const int checkpoints : kCheckpoints) {
        straying.push_back(open(model(), options_for(2000, 2, checkpoints)));
        straying.back().set_sampler(drawing(1, 5));
        chat.talk(straying.back(), 0, Chat::kTurns);
    }
    for (int turn = Chat::kTurns - 1; turn >= 0; turn--) {
        Session straight = open(model(), options_for(2000));
        straight.set_sampler(drawing(1, 5));
        chat.talk(straight, 0, turn);
        chat.user(straight, turn, 1);
        Chat::assistant(straight);
        for (size_t i = 0; i < straying.size(); i++) {
            Session& session = straying[i];
            const auto begin = session.history().turns[static_cast<size_t>(2 * turn)].begin;
            ASSERT_TRUE(session.rewind(begin));
            ASSERT_EQ(session.position(), begin);
            chat.user(session, turn, 1);
            Chat::assistant(session);
            ASSERT_EQ(session.history(), straight.history()) << "turn " << turn;
            ASSERT_TRUE(same_bits(session.logits(), straight.logits()))
                << "turn " << turn << ", " << kCheckpoints[i] << " checkpoints";
        }
    }
}

TEST_P(SavedSessions, GoBackAfterHavingBeenLoaded) {
    const Chat chat(model());
    Session straight = open(model(), options_for(2000, 2, 8));
    straight.set_sampler(drawing(1, 5));
    chat.talk(straight, 0, Chat::kTurns);
    save(straight, file());
    Session loaded = open(model(), options_for(2000, 2, 8));
    load(loaded, file());
    ASSERT_EQ(loaded.history(), straight.history());
    ASSERT_EQ(loaded.checkpoints().size(), straight.checkpoints().size());
    for (const int turn : {9, 7, 3, 0}) {
        const auto begin = straight.history().turns[static_cast<size_t>(2 * turn)].begin;
        const auto a = straight.rewind(begin), b = loaded.rewind(begin);
        ASSERT_TRUE(a && b);
        EXPECT_EQ(a->evaluated, b->evaluated);
        EXPECT_EQ(b->warning, "");
        EXPECT_TRUE(begin == 0 || same_bits(straight.logits(), loaded.logits()));
        EXPECT_EQ(loaded.history(), straight.history());
        save(loaded, file());  // its checkpoints lie in the file that is replaced
    }
}

INSTANTIATE_TEST_SUITE_P(Models, SavedSessions, ::testing::Values("tiny-k3", "tiny-kimi-linear", "odd-k3"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace waste::test
