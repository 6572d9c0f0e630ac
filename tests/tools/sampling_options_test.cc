#include "tools/sampling_options.h"

#include <gtest/gtest.h>

namespace waste::tools {
namespace {

using engine::SamplerOptions;

TEST(SamplingOptions, AreSetByName) {
    SamplerOptions sampler;
    EXPECT_TRUE(set_sampling(sampler, "temp", "0.5"));
    EXPECT_TRUE(set_sampling(sampler, "top-p", "0.9"));
    EXPECT_TRUE(set_sampling(sampler, "min-p", "0.125"));
    EXPECT_TRUE(set_sampling(sampler, "repeat-penalty", "1.5"));
    EXPECT_TRUE(set_sampling(sampler, "top-k", "40"));
    EXPECT_TRUE(set_sampling(sampler, "seed", "18446744073709551615"));
    EXPECT_EQ(sampling_text(sampler),
              "temp 0.5, top-p 0.9, min-p 0.125, repeat-penalty 1.5, top-k 40, seed 18446744073709551615");
}

TEST(SamplingOptions, RefusedOnesChangeNothing) {
    SamplerOptions sampler;
    const auto error = [&](const char* name, const char* value) {
        const auto ok = set_sampling(sampler, name, value);
        return ok ? "accepted" : ok.error().text();
    };
    EXPECT_EQ(error("temp", ""), "temp: '' is not a number");
    EXPECT_EQ(error("temp", "0.5x"), "temp: '0.5x' is not a number");
    EXPECT_EQ(error("top-k", "1.5"), "top-k: '1.5' is not a number");
    EXPECT_EQ(error("seed", "-1"), "seed: '-1' is not a number");
    EXPECT_TRUE(error("temp", "-1").starts_with("temp: ")) << error("temp", "-1");
    EXPECT_TRUE(error("top-p", "2").starts_with("top-p: ")) << error("top-p", "2");
    EXPECT_EQ(error("heat", "1"),
              "heat: cannot be set; what can: temp, top-p, min-p, repeat-penalty, top-k, seed");
    EXPECT_EQ(sampling_text(sampler), sampling_text(SamplerOptions()));
}

TEST(SamplingOptions, OnlyGivenOnesAreTakenOver) {
    CLI::App app;
    SamplerOptions given, sampler;
    std::optional<uint64_t> seed;
    add_sampling_options(app, given, seed);
    app.parse("--temp 0.25 --top-k 7 --seed 3");
    sampler.top_p = 0.5f;
    sampler.top_k = 1;
    sampler.seed = 9;
    take_given_sampling(app, given, sampler);
    EXPECT_EQ(sampling_text(sampler), "temp 0.25, top-p 0.5, min-p 0, repeat-penalty 1, top-k 7, seed 9");
    EXPECT_TRUE(check_sampling(given, seed));
    EXPECT_EQ(given.seed, 3u);
}

TEST(SamplingOptions, ErrorsNameTheOption) {
    SamplerOptions sampler;
    sampler.repeat_penalty = -1;
    std::optional<uint64_t> seed;
    const auto ok = check_sampling(sampler, seed);
    ASSERT_FALSE(ok);
    EXPECT_EQ(ok.error().place, "--repeat-penalty");
    EXPECT_TRUE(seed) << "one was drawn";
}

}  // namespace
}  // namespace waste::tools
