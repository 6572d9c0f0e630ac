// What a session keeps, what going back costs, what a save writes, and what is refused.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "container/file.h"
#include "kernels/float16.h"
#include "tests/support/converted.h"
#include "tests/support/random_model.h"
#include "tests/support/sessions.h"

namespace waste::test {
namespace {

using engine::Model;
using engine::SavedSession;
using engine::SaveOptions;
using engine::Session;
using engine::SessionOptions;
using engine::StateFormat;
using engine::TurnRole;

/// A model like tiny-k3 with a longer context.
class SessionState : public ::testing::Test {
  protected:
    SessionState() : model_(random_model()) {}

    const Model& model() const { return model_; }
    std::string file(const std::string& name = "a.session") const { return directory_.file(name); }

    TempDir directory_;

  private:
    Model random_model() const {
        auto config = nlohmann::json::parse(
            *container::read_text_file(WASTE_TEST_DATA "/tiny-k3/config.json", 1 << 20));
        config["text_config"]["max_position_embeddings"] = 1 << 15;
        const RandomModelRecipe recipe{engine::TrunkRecipe::q4, kernels::Format::mxfp4};
        const auto written = write_random_model(config.dump(), recipe, 1, file("model.waste"));
        if (!written) throw std::runtime_error(written.error().text());
        auto model = Model::open(file("model.waste"));
        if (!model) throw std::runtime_error(model.error().text());
        return std::move(*model);
    }

    Model model_;
};

TEST_F(SessionState, GoesBackAtTheCostOfTheDistanceFromACheckpoint) {
    SessionOptions options = options_for(4096, 2, 4);
    options.checkpoint_interval = 512;
    Session session = open(model(), options);
    feed(session, arbitrary_ids(model(), 2000));
    ASSERT_EQ(session.checkpoints().size(), 3u);
    const auto near = session.rewind(1600);
    ASSERT_TRUE(near);
    EXPECT_EQ(near->evaluated, 1600 - 1536);
    EXPECT_FALSE(session.logits().empty());
    const auto nowhere = session.rewind(1600);
    ASSERT_TRUE(nowhere);
    EXPECT_EQ(nowhere->evaluated, 0);
    const auto far = session.rewind(500);
    ASSERT_TRUE(far);
    EXPECT_EQ(far->evaluated, 500);
    EXPECT_TRUE(session.checkpoints().empty());
}

TEST_F(SessionState, KeepsCheckpointsThatAreNeverFarApart) {
    constexpr int64_t kTokens = 3000;
    SessionOptions options = options_for(kTokens, 2, 6);
    options.checkpoint_interval = 64;
    Session session = open(model(), options);
    const auto ids = arbitrary_ids(model(), kTokens);
    for (size_t at = 0; at < ids.size(); at += 64) {
        feed(session, std::span(ids).subspan(at, std::min<size_t>(64, ids.size() - at)));
    }
    const auto kept = session.checkpoints();
    ASSERT_EQ(kept.size(), 6u);
    EXPECT_EQ(kept.back().position, kTokens - kTokens % 64)
        << "the last one is the likeliest to be asked for";
    int64_t before = 0;
    for (const engine::Checkpoint& checkpoint : kept) {
        // Ever denser towards the end: none saves more than there is behind it, by much.
        EXPECT_LT(checkpoint.position - before, 4 * (kTokens - before) / 5 + 64) << checkpoint.position;
        before = checkpoint.position;
    }
    EXPECT_GT(kept.front().position, kTokens / 5);
    EXPECT_LT(kept.front().position, 9 * kTokens / 10);
}

TEST_F(SessionState, StopsGoingBackWhereItIsAskedTo) {
    SessionOptions options = options_for(1000);
    options.block_tokens = 64;
    Session session = open(model(), options);
    feed(session, arbitrary_ids(model(), 600));
    int blocks = 0;
    const auto rewound = session.rewind(500, [&] { return ++blocks < 3; });
    ASSERT_TRUE(rewound);
    EXPECT_EQ(session.position(), 192);
    EXPECT_EQ(rewound->evaluated, 192);
    Session straight = open(model(), options);
    feed(straight, arbitrary_ids(model(), 600));
    ASSERT_TRUE(straight.rewind(192));
    feed(session, arbitrary_ids(model(), 10));
    feed(straight, arbitrary_ids(model(), 10));
    EXPECT_TRUE(same_bits(session.logits(), straight.logits()));
}

TEST_F(SessionState, RefusesPositionsThatAreNone) {
    Session session = open(model(), options_for(100));
    feed(session, arbitrary_ids(model(), 10));
    EXPECT_FALSE(session.rewind(-1));
    EXPECT_FALSE(session.rewind(11));
    EXPECT_TRUE(session.rewind(0));
    EXPECT_TRUE(session.logits().empty());
    EXPECT_FALSE(engine::generate(session, {}, nullptr).error == std::nullopt);
}

TEST_F(SessionState, EachSeedHoldsFromItsPositionOn) {
    Session session = open(model(), options_for(300, 2, 4));
    session.set_sampler(drawing(1, 1));
    feed(session, arbitrary_ids(model(), 20));
    session.begin_turn(TurnRole::assistant);
    const auto first = generate(session, 20);
    ASSERT_TRUE(session.rewind(20));
    session.set_sampler(drawing(1, 2));
    const auto second = generate(session, 20);
    EXPECT_NE(first, second);
    ASSERT_TRUE(session.rewind(30));
    EXPECT_EQ(session.sampler().seed, 2u);
    const auto rest = generate(session, 10);
    EXPECT_TRUE(std::equal(rest.begin(), rest.end(), second.begin() + 10)) << "drawn again as before";
    ASSERT_TRUE(session.rewind(19));
    EXPECT_EQ(session.sampler().seed, 1u);
}

TEST_F(SessionState, ASaveWritesOnlyWhatChanged) {
    SessionOptions options = options_for(3 * engine::kLatentBlock, 2, 4);
    options.checkpoint_interval = engine::kLatentBlock;
    Session session = open(model(), options);
    feed(session, arbitrary_ids(model(), engine::kLatentBlock + 100));
    const auto first = session.save(file());
    feed(session, arbitrary_ids(model(), 10));
    const auto second = session.save(file());
    ASSERT_TRUE(first && second);
    const engine::ModelConfig& c = model().config();
    const auto block = static_cast<uint64_t>(c.mla_layer_count() * engine::kLatentBlock *
                                             (c.kv_lora_rank + c.qk_rope_head_dim) * 4);
    EXPECT_LT(second->written_bytes + block, first->written_bytes);
    EXPECT_GE(second->file_bytes, first->file_bytes);
    Session again = open(model(), options);
    load(again, file());
    EXPECT_TRUE(same_bits(again.logits(), session.logits()));

    // What was changed by going back is not taken over.
    ASSERT_TRUE(session.rewind(engine::kLatentBlock - 100));
    feed(session, arbitrary_ids(model(), 300, 99));
    save(session, file());
    load(again, file());
    feed(session, arbitrary_ids(model(), 5));
    feed(again, arbitrary_ids(model(), 5));
    EXPECT_TRUE(same_bits(again.logits(), session.logits()));
}

TEST_F(SessionState, Bf16IsHalfAsLarge) {
    Session session = open(model(), options_for(600));
    feed(session, arbitrary_ids(model(), 500));
    const auto exact = session.save(file("exact"));
    const auto small = session.save(file("small"), {StateFormat::bf16, StateFormat::bf16});
    ASSERT_TRUE(exact && small);
    EXPECT_LT(small->file_bytes, exact->file_bytes * 2 / 3);
    Session loaded = open(model(), options_for(600));
    load(loaded, file("small"));
    const auto was = std::as_const(session).state().recurrent(),
               is = std::as_const(loaded).state().recurrent();
    for (size_t i = 0; i < was.size(); i++) {
        ASSERT_EQ(is[i], kernels::bf16_to_f32(kernels::f32_to_bf16(was[i])));
    }
    EXPECT_TRUE(same_bits(session.logits(), loaded.logits()));
    EXPECT_TRUE(loaded.save(file("small"), {StateFormat::bf16, StateFormat::bf16}));
}

TEST_F(SessionState, ExactCheckpointsAreNotLostToAFileOfAnotherFormat) {
    Session session = open(model(), options_for(100, 2, 2));
    feed(session, arbitrary_ids(model(), 10));
    session.begin_turn(TurnRole::user);
    feed(session, arbitrary_ids(model(), 10));
    const auto format_of_checkpoint = [&](const SaveOptions& options) {
        save(session, file(), options);
        const auto saved = SavedSession::open(file());
        return saved->file().find(section_name(engine::SectionKind::recurrent, 0, 1))->element;
    };
    for (const StateFormat format : {StateFormat::bf16, StateFormat::f32, StateFormat::bf16}) {
        EXPECT_EQ(format_of_checkpoint({format, format}), static_cast<uint32_t>(format));
    }
}

TEST_F(SessionState, DescriptionsOfImpossibleLengthsAreRefused) {
    engine::SessionAbout about;
    for (const int64_t position : {int64_t{1} << 27, int64_t{1} << 39, INT64_MAX}) {
        about.position = position;
        const auto parsed = engine::parse_about(about_text(about), "it");
        ASSERT_FALSE(parsed);
        EXPECT_NE(parsed.error().message.find("'position'"), std::string::npos) << parsed.error().text();
    }
}

TEST_F(SessionState, KeepsWhatItDoesNotOwn) {
    Session session = open(model(), options_for(100)), other = open(model(), options_for(100));
    feed(session, arbitrary_ids(model(), 10));
    save(session, file());
    save(session, file());  // its own
    feed(other, arbitrary_ids(model(), 10));
    EXPECT_FALSE(other.save(file())) << "another session";
    EXPECT_TRUE(other.save(file(), {StateFormat::f32, StateFormat::f32, true}));
    EXPECT_FALSE(session.save(file())) << "it has changed under its hands";
    ASSERT_TRUE(container::write_file(file("text"), "a diary"));
    EXPECT_FALSE(session.save(file("text")));
    EXPECT_EQ(*container::read_text_file(file("text"), 100), "a diary");
}

TEST_F(SessionState, RefusesAnotherModelsFile) {
    const Converted other(lossless("tiny-k3"));
    Session session = open(other.model(), options_for(100));
    feed(session, arbitrary_ids(model(), 10));
    save(session, file());
    Session here = open(model(), options_for(100));
    const auto saved = SavedSession::open(file());
    ASSERT_TRUE(saved);
    const auto ok = here.load(*saved);
    ASSERT_FALSE(ok);
    EXPECT_NE(ok.error().message.find("another model"), std::string::npos) << ok.error().text();
    Session small = open(other.model(), options_for(9));
    EXPECT_EQ(small.load(*saved).error().kind, ErrorKind::capacity);
    feed(small, arbitrary_ids(model(), 9));  // it is empty, not broken
}

TEST_F(SessionState, GoesBackPastADamagedCheckpoint) {
    Session session = open(model(), options_for(1000, 2, 4));
    feed(session, arbitrary_ids(model(), 100));
    session.begin_turn(TurnRole::user);
    feed(session, arbitrary_ids(model(), 100, 5));
    session.begin_turn(TurnRole::user);
    feed(session, arbitrary_ids(model(), 100, 6));
    save(session, file());
    auto saved = SavedSession::open(file());
    ASSERT_TRUE(saved);
    const auto* entry = saved->file().find(section_name(engine::SectionKind::recurrent, 1, 2));
    ASSERT_NE(entry, nullptr);
    std::string bytes = *container::read_text_file(file(), 1 << 30);
    bytes[entry->offset + 5] ^= 1;
    ASSERT_TRUE(container::write_file(file(), bytes));
    saved = SavedSession::open(file());
    ASSERT_TRUE(saved);
    EXPECT_FALSE(saved->verify());
    Session loaded = open(model(), options_for(1000, 2, 4));
    ASSERT_TRUE(loaded.load(*saved)) << "only a checkpoint is damaged";
    const auto back = loaded.rewind(200);
    ASSERT_TRUE(back);
    EXPECT_EQ(back->evaluated, 100);
    EXPECT_NE(back->warning.find("KDA state 1 of checkpoint 1 does not match"), std::string::npos)
        << back->warning;
    ASSERT_TRUE(session.rewind(200));
    EXPECT_TRUE(same_bits(session.logits(), loaded.logits()));
}

}  // namespace
}  // namespace waste::test
