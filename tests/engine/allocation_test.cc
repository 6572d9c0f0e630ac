// After the first tokens, feeding a token allocates nothing.
#include <gtest/gtest.h>

#include <algorithm>

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

INSTANTIATE_TEST_SUITE_P(, Allocation, ::testing::Values("tiny-k3", "odd-k3", "tiny-kimi-linear"),
                         [](const auto& test) {
                             std::string name = test.param;
                             std::replace(name.begin(), name.end(), '-', '_');
                             return name;
                         });

}  // namespace
}  // namespace waste::test
