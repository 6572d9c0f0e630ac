// A session takes at its birth what the plan says, and after the first tokens nothing more.
#include <gtest/gtest.h>

#include <algorithm>

#include "container/memory.h"
#include "engine/plan.h"
#include "engine/session.h"
#include "tests/support/allocations.h"
#include "tests/support/converted.h"

namespace waste::test {
namespace {

class Allocation : public ::testing::TestWithParam<std::string> {};

TEST_P(Allocation, NoneWhileATokenIsFed) {
    const Converted converted(defaults(GetParam()));
    engine::SessionOptions options;
    options.context_length = 64;
    options.threads = 2;
    auto session = engine::Session::create(converted.model(), options);
    ASSERT_TRUE(session) << session.error().text();
    const std::vector<int32_t> ids{5, 6, 7, 8, 9, 10, 11, 12};
    ASSERT_TRUE(session->feed(std::span(ids).first(2)));
    const int64_t before = allocation_count();
    ASSERT_TRUE(session->feed(std::span(ids).subspan(2)));
    EXPECT_EQ(allocation_count() - before, 0);
}

/// What the plan calls a session's own, for these options.
std::vector<int64_t> planned_blocks(const engine::Model& model, const engine::SessionOptions& options) {
    const engine::Plan plan = engine::plan(model.config(), {}, options.shape(), std::nullopt);
    return {static_cast<int64_t>(plan.kda_state_bytes + plan.conv_ring_bytes + plan.mla_latent_bytes),
            static_cast<int64_t>(plan.activation_bytes)};
}

TEST_P(Allocation, ASessionTakesWhatThePlanSays) {
    // The pool, the executor, the tables of layers: they grow with neither context nor block.
    constexpr int64_t kBesides = 64 << 10;
    const Converted converted(defaults(GetParam()));
    for (const int64_t context : {1, 64, 700, 4000}) {
        for (const int64_t block : {64, 512, 4096}) {
            for (const int threads : {1, 3}) {
                engine::SessionOptions options;
                options.context_length = context;
                options.block_tokens = block;
                options.threads = threads;
                int64_t planned = 0, alignment = 0;
                for (const int64_t bytes : planned_blocks(converted.model(), options)) {
                    planned += bytes;
                    if (bytes >= static_cast<int64_t>(container::kHugePageBytes)) {
                        alignment += container::kHugePageBytes;
                    }
                }
                const int64_t before = allocated_bytes();
                ASSERT_TRUE(engine::Session::create(converted.model(), options));
                const int64_t taken = allocated_bytes() - before;
                EXPECT_GE(taken, planned) << context << " positions, blocks of " << block;
                EXPECT_LE(taken, planned + alignment + kBesides)
                    << context << " positions, blocks of " << block << ", " << threads << " threads";
            }
        }
    }
}

/// A long prompt after a short one takes nothing either: the peak is there from the start.
TEST_P(Allocation, NoneForALongPrompt) {
    const Converted converted(defaults(GetParam()));
    engine::SessionOptions options;
    options.context_length = 1100;
    options.threads = 2;
    auto session = engine::Session::create(converted.model(), options);
    ASSERT_TRUE(session) << session.error().text();
    std::vector<int32_t> ids(1100);
    for (size_t i = 0; i < ids.size(); i++) ids[i] = static_cast<int32_t>((3 + 7 * i) % 97);
    ASSERT_TRUE(session->feed(std::span(ids).first(2)));
    const int64_t before = allocated_bytes();
    ASSERT_TRUE(session->feed(std::span(ids).subspan(2)));
    // The executor's lists grow to the widest call, a few numbers for each of its products.
    EXPECT_LE(allocated_bytes() - before, 4096);
}

INSTANTIATE_TEST_SUITE_P(, Allocation, ::testing::Values("tiny-k3", "odd-k3", "tiny-kimi-linear"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace waste::test
