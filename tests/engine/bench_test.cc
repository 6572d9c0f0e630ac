// Being stopped; what it prints and adds up to is tested with the command.
#include "engine/bench.h"

#include <gtest/gtest.h>

#include "tests/support/converted.h"

namespace waste::engine {
namespace {

TEST(Bench, AsksBeforeEveryBlockWhetherToGoOn) {
    const test::Converted converted(test::defaults("tiny-kimi-linear"));
    SessionOptions options;
    options.context_length = 256;
    options.block_tokens = 64;
    options.threads = 1;
    auto session = Session::create(converted.model(), options);
    ASSERT_TRUE(session) << session.error().text();
    BenchOptions bench;
    bench.prompt_lengths = {200};
    bench.decode_tokens = 1;
    bench.memory_rate_bytes = 1 << 20;
    // Asked before the prompt and after its first block.
    for (const int64_t answers : {0, 1, 2}) {
        session->clear();
        int64_t asked = 0;
        const auto result = run_bench(converted.model(), *session, bench,
                                      [&](const std::string&) { return asked++ < answers; });
        ASSERT_FALSE(result);
        EXPECT_EQ(result.error().kind, ErrorKind::interrupted);
        EXPECT_EQ(asked, answers + 1);
        EXPECT_EQ(session->position(), 64 * answers);
    }
}

}  // namespace
}  // namespace waste::engine
