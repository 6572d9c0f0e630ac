#include "engine/text/stop_ids.h"

#include <gtest/gtest.h>

#include "text_test_data.h"

namespace waste::engine {
namespace {

using test::demo_tokenizer;
using test::kDemoVocabSize;

using Ids = std::vector<int32_t>;

Result<Ids> ids_of(std::string_view generation_config, const std::vector<int64_t>& config_eos = {}) {
    return stop_ids(&demo_tokenizer(), generation_config, config_eos, kDemoVocabSize, "g");
}

TEST(StopIds, JoinsAllSources) {
    EXPECT_EQ(ids_of(test::read_demo_file("generation_config.json")), (Ids{5889, 5890}));
    EXPECT_EQ(ids_of(R"({"eos_token_id": 5890})"), (Ids{5889, 5890}));
    EXPECT_EQ(ids_of(R"({"eos_token_id": [7, 5889, 7]})", {9, 7}), (Ids{7, 9, 5889}));
    EXPECT_EQ(ids_of(R"({"eos_token_id": null})"), (Ids{5889}));
    EXPECT_EQ(ids_of(R"({"eos_token_id": []})"), (Ids{5889}));
    EXPECT_EQ(ids_of("{}", {5890}), (Ids{5889, 5890}));
    EXPECT_EQ(ids_of("", {5890}), (Ids{5889, 5890})) << "a release without the file";
}

TEST(StopIds, NeedsNoEosToken) {
    const auto tokenizer = Tokenizer::create(test::rank_file({}), "{}", 512, "m");
    ASSERT_TRUE(tokenizer);
    EXPECT_EQ(stop_ids(&*tokenizer, "{}", {}, 512, "g"), Ids{});
}

TEST(StopIds, RefusesEachKindOfDamage) {
    for (const char* text : {"{", "[]", "7", "{\"\xFF\": 1}"}) {
        EXPECT_EQ(ids_of(text).error().text(), "g: not a JSON object in UTF-8") << text;
    }
    for (const char* eos : {"\"5889\"", "1.5", "{}", "true", "[null]", "[[5889]]", "18446744073709551615"}) {
        EXPECT_EQ(ids_of(std::string("{\"eos_token_id\": ") + eos + "}").error().text(),
                  "g: eos_token_id is neither a token id nor a list of them");
    }
    EXPECT_EQ(ids_of(R"({"eos_token_id": 6144})").error().text(),
              "g: end-of-text id 6144 is not below the vocabulary size 6144");
    EXPECT_FALSE(ids_of(R"({"eos_token_id": -1})"));
    EXPECT_FALSE(ids_of("{}", {INT64_MAX}));
}

}  // namespace
}  // namespace waste::engine
