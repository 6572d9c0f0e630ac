#include "tools/budget_option.h"

#include <gtest/gtest.h>

namespace waste::tools {
namespace {

constexpr uint64_t kGiB = uint64_t{1} << 30;

TEST(ParseSize, KnowsWhatPeopleWrite) {
    const std::pair<const char*, uint64_t> sizes[] = {
        {"0", 0},
        {"4096", 4096},
        {"17B", 17},
        {"1k", 1024},
        {"512MiB", 512u << 20},
        {"512 mib", 512u << 20},
        {"24G", 24 * kGiB},
        {"24GiB", 24 * kGiB},
        {"24GB", 24'000'000'000},
        {"1.5G", kGiB + kGiB / 2},
        {"0.25KB", 250},
        {"0.1K", 102},
        {"1.999999999999999999999K", 2047},
        {"2T", 2048 * kGiB},
        {"007M", 7u << 20},
        {"18446744073709551615", UINT64_MAX},
        {"16777215T", uint64_t{16777215} << 40},
    };
    for (const auto& [text, bytes] : sizes) {
        const auto size = parse_size(text);
        ASSERT_TRUE(size) << size.error().text();
        EXPECT_EQ(*size, bytes) << text;
    }
}

TEST(ParseSize, RefusesTheRest) {
    for (const char* text : {"",
                             " ",
                             "G",
                             "auto",
                             "-1",
                             "+1",
                             "1.",
                             ".5G",
                             "1.G",
                             "1..5G",
                             "1.5.5G",
                             "1e9",
                             "0x10",
                             "24Gi",
                             "24P",
                             "24GiBs",
                             "24 G B",
                             "24G ",
                             " 24G",
                             "1,5G",
                             "nan",
                             "inf",
                             "18446744073709551616",
                             "16777216T",
                             "18446744073709551615.5K",
                             "99999999999999999999G",
                             "24\n"}) {
        const auto size = parse_size(text);
        EXPECT_FALSE(size) << text;
        if (!size) {
            EXPECT_EQ(size.error().kind, ErrorKind::invalid);
            EXPECT_NE(size.error().text().find("24G"), std::string::npos) << "says how to write it";
        }
    }
}

/// What `waste` would take from these words.
std::optional<uint64_t> budget_of(const std::string& arguments) {
    CLI::App app;
    std::optional<uint64_t> budget = 1;
    add_budget_option(app, budget);
    app.parse(arguments);
    return budget;
}

TEST(BudgetOption, TakesASizeOrAuto) {
    EXPECT_EQ(budget_of("--budget 24G"), 24 * kGiB);
    EXPECT_EQ(budget_of("--budget auto"), std::nullopt);
    EXPECT_THROW(budget_of("--budget lots"), CLI::ValidationError);
    EXPECT_THROW(budget_of("--budget"), CLI::ParseError);
}

}  // namespace
}  // namespace waste::tools
