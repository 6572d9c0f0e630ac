#include "engine/hot_list.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <thread>

#include "container/checksum.h"
#include "container/file.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

constexpr int64_t kLayers = 3, kExperts = 8, kKeys = kLayers * kExperts;
const std::string kFingerprint = "0123456789abcdef0123456789abcdef";

HotList empty_list() {
    return HotList(kFingerprint, kLayers, kExperts);
}

HotList some_list() {
    HotList list = empty_list();
    list.add(0, 3);
    list.add(5, 7);
    list.add(6, 7);
    list.add(kKeys - 1, 9);
    return list;
}

Result<HotList> parsed(std::string_view bytes) {
    return HotList::parse(bytes, "input", kFingerprint, kLayers, kExperts);
}

/// With a checksum that matches again.
std::string resealed(std::string bytes) {
    const size_t checked = bytes.size() - 8;
    const uint64_t hash = container::xxh3_64(std::string_view(bytes).substr(0, checked));
    for (size_t i = 0; i < 8; i++) bytes[checked + i] = static_cast<char>(hash >> (8 * i));
    return bytes;
}

void expect_same(std::span<const uint32_t> a, std::span<const uint32_t> b) {
    EXPECT_TRUE(std::equal(a.begin(), a.end(), b.begin(), b.end()));
}

TEST(HotListTest, RanksByCountThenKey) {
    const HotList list = some_list();
    EXPECT_EQ(list.hottest(100), (std::vector<int64_t>{kKeys - 1, 5, 6, 0}));
    EXPECT_EQ(list.hottest(2), (std::vector<int64_t>{kKeys - 1, 5}));
    EXPECT_TRUE(list.hottest(0).empty());
    EXPECT_TRUE(empty_list().hottest(5).empty());
}

TEST(HotListTest, CountsDoNotWrap) {
    HotList list = empty_list();
    list.add(1, UINT32_MAX - 1);
    list.add(1, 5);
    EXPECT_EQ(list.counts()[1], UINT32_MAX);
}

TEST(HotListTest, ComesBackFromItsBytes) {
    const HotList list = some_list();
    const auto back = parsed(list.file_bytes());
    ASSERT_TRUE(back) << back.error().text();
    expect_same(back->counts(), list.counts());
}

TEST(HotListTest, EveryFlippedBitIsRefused) {
    const std::string good = some_list().file_bytes();
    for (size_t bit = 0; bit < 8 * good.size(); bit++) {
        std::string bad = good;
        bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
        const auto list = parsed(bad);
        ASSERT_FALSE(list) << "bit " << bit;
        EXPECT_EQ(list.error().kind, ErrorKind::corrupt) << "bit " << bit;
    }
}

TEST(HotListTest, EveryOtherLengthIsRefused) {
    const std::string good = some_list().file_bytes();
    for (size_t length = 0; length < good.size(); length++) {
        EXPECT_FALSE(parsed(std::string_view(good).substr(0, length))) << length;
        if (length >= 20) {
            EXPECT_FALSE(parsed(resealed(good.substr(0, length)))) << length;
        }
    }
    EXPECT_FALSE(parsed(good + '\0'));
    EXPECT_FALSE(parsed(resealed(good + '\0')));
}

TEST(HotListTest, OtherModelsAndVersionsAreRefused) {
    const std::string good = some_list().file_bytes();
    const auto kind = [&](const std::string& bytes, const std::string& fingerprint, int64_t layers,
                          int64_t experts) {
        const auto list = HotList::parse(bytes, "input", fingerprint, layers, experts);
        return list ? std::optional<ErrorKind>() : list.error().kind;
    };
    EXPECT_EQ(kind(good, "f" + kFingerprint.substr(1), kLayers, kExperts), ErrorKind::unsupported);
    EXPECT_EQ(kind(good, kFingerprint, kLayers + 1, kExperts), ErrorKind::unsupported);
    EXPECT_EQ(kind(good, kFingerprint, kExperts, kLayers), ErrorKind::unsupported);
    std::string later = good;
    later[8] = 2;
    EXPECT_EQ(kind(resealed(later), kFingerprint, kLayers, kExperts), ErrorKind::unsupported);
}

TEST(HotListTest, AMissingFileIsEmpty) {
    const test::TempDir directory;
    const auto list = HotList::load(directory.file("none.hot"), kFingerprint, kLayers, kExperts);
    ASSERT_TRUE(list) << list.error().text();
    expect_same(list->counts(), empty_list().counts());
}

TEST(HotListTest, SavesIntoNewDirectories) {
    const test::TempDir directory;
    const std::string path = directory.file("cache/waste/model.hot");
    HotList list = some_list();
    const auto saved = list.save(path);
    ASSERT_TRUE(saved) << saved.error().text();
    const auto back = HotList::load(path, kFingerprint, kLayers, kExperts);
    ASSERT_TRUE(back) << back.error().text();
    expect_same(back->counts(), list.counts());
}

TEST(HotListTest, SavesOfTwoRunsAddUp) {
    const test::TempDir directory;
    const std::string path = directory.file("model.hot");
    ASSERT_TRUE(some_list().save(path));
    auto first = HotList::load(path, kFingerprint, kLayers, kExperts);
    auto second = HotList::load(path, kFingerprint, kLayers, kExperts);
    ASSERT_TRUE(first && second);
    first->add(0, 10);
    second->add(1, 20);
    ASSERT_TRUE(first->save(path));
    ASSERT_TRUE(second->save(path));
    ASSERT_TRUE(first->save(path)) << "a second save adds nothing";
    const auto all = HotList::load(path, kFingerprint, kLayers, kExperts);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->counts()[0], 13u);
    EXPECT_EQ(all->counts()[1], 20u);
    EXPECT_EQ(all->counts()[5], 7u);
}

TEST(HotListTest, SavesAtTheSameTimeAddUp) {
    const test::TempDir directory;
    const std::string path = directory.file("model.hot");
    constexpr int kSavers = 4, kSaves = 5;
    std::vector<std::thread> savers;
    for (int i = 0; i < kSavers; i++) {
        savers.emplace_back([&] {
            HotList list = empty_list();
            for (int save = 0; save < kSaves; save++) {
                list.add(2, 1);
                EXPECT_TRUE(list.save(path));
            }
        });
    }
    for (std::thread& saver : savers) saver.join();
    const auto all = HotList::load(path, kFingerprint, kLayers, kExperts);
    ASSERT_TRUE(all);
    EXPECT_EQ(all->counts()[2], static_cast<uint32_t>(kSavers * kSaves));
}

TEST(HotListTest, ADamagedFileIsReportedAndReplaced) {
    const test::TempDir directory;
    const std::string path = directory.file("model.hot");
    ASSERT_TRUE(container::write_file(path, "WASTEHOT but not really, only long enough to look at"));
    const auto damaged = HotList::load(path, kFingerprint, kLayers, kExperts);
    ASSERT_FALSE(damaged);
    EXPECT_EQ(damaged.error().kind, ErrorKind::corrupt);
    EXPECT_EQ(damaged.error().place, path);
    ASSERT_TRUE(some_list().save(path));
    EXPECT_TRUE(HotList::load(path, kFingerprint, kLayers, kExperts));
}

TEST(HotListTest, OldRunsFade) {
    const test::TempDir directory;
    const std::string path = directory.file("model.hot");
    HotList old = empty_list();
    old.add(0, 1000);
    ASSERT_TRUE(old.save(path));
    for (int run = 0; run < 40; run++) {
        HotList list = empty_list();
        list.add(1, 1000);
        ASSERT_TRUE(list.save(path));
    }
    const auto now = HotList::load(path, kFingerprint, kLayers, kExperts);
    ASSERT_TRUE(now);
    EXPECT_LT(now->counts()[0], 10u);
    EXPECT_GT(now->counts()[1], 1000u);
    EXPECT_LE(now->counts()[1], HotList::kMeanCount * kKeys);
}

/// The environment as it was, when it goes.
class Environment {
  public:
    explicit Environment(const char* name) : name_(name) {
        if (const char* value = std::getenv(name)) before_ = value;
    }
    ~Environment() { set(before_ ? before_->c_str() : nullptr); }
    void set(const char* value) { value ? setenv(name_, value, 1) : unsetenv(name_); }

  private:
    const char* name_;
    std::optional<std::string> before_;
};

TEST(HotListTest, LiesInTheUsersCache) {
    Environment cache("XDG_CACHE_HOME"), home("HOME");
    home.set("/home/ann");
    cache.set("/var/tmp/ann");
    EXPECT_EQ(hot_list_path("ab"), "/var/tmp/ann/waste/ab.hot");
    for (const char* ignored : {"", "relative", static_cast<const char*>(nullptr)}) {
        cache.set(ignored);
        EXPECT_EQ(hot_list_path("ab"), "/home/ann/.cache/waste/ab.hot");
    }
    home.set(nullptr);
    EXPECT_EQ(hot_list_path("ab"), "");
}

TEST(ExpectedHitRateTest, EndsAreExact) {
    const std::vector<uint32_t> counts{9, 0, 4, 4};
    EXPECT_EQ(expected_hit_rate(counts, 0, 1), 0);
    EXPECT_EQ(expected_hit_rate(counts, 1, 1), 0);
    EXPECT_EQ(expected_hit_rate(counts, 4, 1), 1);
    EXPECT_EQ(expected_hit_rate(counts, 9, 1), 1);
    EXPECT_EQ(expected_hit_rate({}, 0, 1), 1);
}

TEST(ExpectedHitRateTest, IsTheHottestExpertsShare) {
    const std::vector<uint32_t> counts{9, 0, 4, 4};
    EXPECT_DOUBLE_EQ(expected_hit_rate(counts, 2, 1), 9.5 / 19);
    EXPECT_DOUBLE_EQ(expected_hit_rate(counts, 3, 1), 14.0 / 19);
    EXPECT_DOUBLE_EQ(expected_hit_rate(std::vector<uint32_t>(8), 6, 2), 0.5);
}

}  // namespace
}  // namespace waste::engine
