// A prompt's length decides by which paths it is computed: single tokens or tiles of them, steps or chunks of KDA,
// one expert's tokens in one task or in several, one block or two. Whichever they are, the logits are those of a
// prompt that was fed token by token.
#include <gtest/gtest.h>

#include <cstring>

#include "engine/session.h"
#include "tests/support/converted.h"
#include "tests/support/golden.h"

namespace waste::test {
namespace {

using engine::Session;

// At, under and over: pairs of tokens and vectors of them, tiles (workspace.h, kernels/tile.h), chunks
// (kernels/kda.h), tasks of a product (engine/executor.cc), blocks.
constexpr int64_t kLengths[] = {1,  2,  3,  15, 16, 17,  31,  32,  33,  47,  48,  49, 63,
                                64, 65, 95, 96, 97, 127, 128, 129, 511, 512, 513, 514};
constexpr int64_t kLongest = 514;

class PathSwitch : public ::testing::TestWithParam<std::string> {
  protected:
    PathSwitch() : converted_(defaults(GetParam())) {
        const int64_t vocab = converted_.model().config().vocab_size;
        for (int64_t i = 0; i < kLongest; i++) ids_.push_back(static_cast<int32_t>((11 + 53 * i) % vocab));
    }

    Session new_session() const {
        engine::SessionOptions options;
        options.context_length = kLongest;
        options.block_tokens = 512;
        options.compute = engine::Compute::f32;
        options.threads = 2;
        auto session = Session::create(converted_.model(), options);
        if (!session) throw std::runtime_error(session.error().text());
        return std::move(*session);
    }

    Converted converted_;
    std::vector<int32_t> ids_;
};

TEST_P(PathSwitch, EveryLengthIsAsTokenByToken) {
    const auto vocab = static_cast<size_t>(converted_.model().config().vocab_size);
    Session single = new_session();
    std::vector<float> expected;
    for (const int32_t id : ids_) {
        ASSERT_TRUE(single.feed({&id, 1}));
        expected.insert(expected.end(), single.logits().begin(), single.logits().end());
    }
    Session session = new_session();
    for (const int64_t length : kLengths) {
        session.clear();
        ASSERT_TRUE(session.feed(std::span(ids_).first(static_cast<size_t>(length))));
        const auto want = std::span(expected).subspan(static_cast<size_t>(length - 1) * vocab, vocab);
        // The bound of invariance_test.cc.
        EXPECT_LE(relative_error(session.logits(), want), 5e-5) << length << " tokens";
        if (length < kernels::kKdaChunk) {
            EXPECT_EQ(std::memcmp(session.logits().data(), want.data(), want.size_bytes()), 0)
                << length << " tokens fill no chunk, so not a bit may differ";
        }
    }
}

INSTANTIATE_TEST_SUITE_P(, PathSwitch, ::testing::Values("tiny-k3", "odd-k3", "tiny-kimi-linear"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace waste::test
