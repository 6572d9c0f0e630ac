// A prompt that was read before is not read again, and nobody can tell from the logits.
#include "engine/prompt_cache.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>

#include "container/file.h"
#include "tests/support/converted.h"

namespace waste::test {
namespace {

using engine::PromptCache;
using engine::Session;

class PromptCaches : public ::testing::TestWithParam<std::string> {
  protected:
    static constexpr uint64_t kPlenty = uint64_t{1} << 40;

    std::vector<int32_t> ids(int64_t count, int64_t start = 7) const {
        std::vector<int32_t> out;
        for (int64_t i = 0; i < count; i++) {
            out.push_back(static_cast<int32_t>((start + 61 * i) % converted_.model().config().vocab_size));
        }
        return out;
    }
    /// One beginning, several ends.
    std::vector<int32_t> document(int64_t question) const {
        std::vector<int32_t> out = ids(300);
        const auto rest = ids(100, 3 + question);
        out.insert(out.end(), rest.begin(), rest.end());
        return out;
    }
    Session session() const { return session({}); }
    Session session(engine::SessionOptions options) const {
        options.context_length = 512;
        options.threads = 2;
        options.checkpoints = 4;
        auto session = Session::create(converted_.model(), options);
        if (!session) throw std::runtime_error(session.error().text());
        return std::move(*session);
    }
    /// Reads it, compares with a session that has no cache, and returns how many tokens were known.
    int64_t reused(const std::vector<int32_t>& prompt, uint64_t most_bytes = kPlenty) {
        auto cache = PromptCache::open(directory(), most_bytes);
        if (!cache) throw std::runtime_error(cache.error().text());
        Session cached = session(), plain = session();
        engine::SamplerOptions sampler;
        sampler.seed = 5;
        for (Session* each : {&cached, &plain}) {
            each->set_sampler(sampler);
            each->begin_turn(engine::TurnRole::user);
        }
        const auto known = cache->read(cached, prompt, nullptr);
        if (!known) throw std::runtime_error(known.error().text());
        warning_ = cache->warning();
        EXPECT_TRUE(plain.feed(prompt));
        const auto a = cached.logits(), b = plain.logits();
        EXPECT_TRUE(a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0);
        EXPECT_EQ(cached.history(), plain.history());
        return *known;
    }
    std::string directory() const { return directory_.file("prompts"); }
    std::vector<std::string> files() const { return *container::list_directory(directory()); }

    TempDir directory_;
    Converted converted_{defaults(GetParam())};
    std::string warning_;
};

TEST_P(PromptCaches, ReadNoPromptTwice) {
    EXPECT_EQ(reused(document(0)), 0);
    EXPECT_EQ(reused(document(0)), 384) << "400 tokens down to the grid";
    auto longer = document(0);
    longer.resize(500, 9);
    EXPECT_EQ(reused(longer), 384);
    EXPECT_EQ(reused(longer), 448);
    EXPECT_EQ(reused(ids(63)), 0) << "less than a chunk";
}

TEST_P(PromptCaches, FindACommonBeginningTheSecondTime) {
    EXPECT_EQ(reused(document(0)), 0);
    EXPECT_EQ(reused(document(1)), 0) << "nothing was kept where it leaves the first";
    EXPECT_EQ(reused(document(2)), 256) << "now there is";
    EXPECT_EQ(reused(document(3)), 256);
    EXPECT_EQ(reused(ids(400, 8)), 0) << "another one";
}

TEST_P(PromptCaches, GoOnOnlyFromWhereThereIsSomethingToDrawFrom) {
    engine::SessionOptions options;
    options.block_tokens = kernels::kKdaChunk;
    options.checkpoint_interval = 2 * kernels::kKdaChunk;
    auto cache = PromptCache::open(directory(), kPlenty);
    ASSERT_TRUE(cache);
    Session first = session(options), second = session(options), plain = session(options);
    ASSERT_TRUE(cache->read(first, document(0), nullptr));
    // The whole prompt is a beginning of the first, whose checkpoint there has no logits.
    const auto prompt = ids(256);
    const auto known = cache->read(second, prompt, nullptr);
    ASSERT_TRUE(known);
    EXPECT_EQ(*known, 128);
    ASSERT_TRUE(plain.feed(prompt));
    const auto a = second.logits(), b = plain.logits();
    ASSERT_EQ(a.size(), b.size());
    EXPECT_EQ(std::memcmp(a.data(), b.data(), a.size_bytes()), 0);
}

TEST_P(PromptCaches, StayWithinTheirSize) {
    reused(document(0));
    ASSERT_EQ(files().size(), 1u);
    const uint64_t one = *container::file_size(container::join_path(directory(), files()[0]));
    reused(ids(400, 8), one * 5 / 2);
    reused(document(0), one * 5 / 2);  // used again
    reused(ids(400, 9), one * 5 / 2);
    EXPECT_EQ(files().size(), 2u);
    EXPECT_EQ(reused(document(0), one * 5 / 2), 384) << "used last but one";
    EXPECT_EQ(reused(ids(400, 9), 1), 384);
}

TEST_P(PromptCaches, DropWhatIsDamaged) {
    reused(document(0));
    const std::string path = container::join_path(directory(), files()[0]);
    std::string bytes = *container::read_text_file(path, 1 << 30);
    for (const size_t at : {size_t{100}, bytes.size() / 2}) {
        std::string bad = bytes;
        bad[at] ^= 1;
        ASSERT_TRUE(container::write_file(path, bad));
        EXPECT_EQ(reused(document(0)), 0) << at;
        EXPECT_NE(warning_.find(path), std::string::npos) << warning_;
        EXPECT_EQ(reused(document(0)), 384) << "kept anew";
    }
}

INSTANTIATE_TEST_SUITE_P(Models, PromptCaches, ::testing::Values("tiny-k3", "tiny-kimi-linear"),
                         [](const auto& test) { return test.param == "tiny-k3" ? "K3" : "KimiLinear"; });

}  // namespace
}  // namespace waste::test
