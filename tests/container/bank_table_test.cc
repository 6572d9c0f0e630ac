// The table at the end of a bank. Mutations are resealed, so that the checks behind the hashes are reached.
#include <gtest/gtest.h>

#include <functional>

#include "container/checksum.h"
#include "container/manifest.h"
#include "tests/support/tiny_container.h"

namespace waste::container {
namespace {

using test::tiny_container;
using test::TinyContainer;

constexpr size_t kBank = 1;

std::string parse_error(const std::vector<std::byte>& file, const BankEntry& bank) {
    const auto table = parse_bank_table(file, bank, "b");
    return table ? "parsed" : table.error().text();
}

/// The bank's file with a table and footer that agree with each other and with `bank`, whatever the entries
/// say: the table's place is behind the records, not where the entries would put it.
std::vector<std::byte> resealed(const TinyContainer::Bank& parts, BankEntry& bank) {
    bank.table_hash = bank_table_hash(parts.table);
    auto file = parts.records;
    const auto tail = bank_table_bytes(bank.shape, bank.layer, parts.table);
    file.insert(file.end(), tail.begin(), tail.end());
    const uint64_t table_offset = parts.records.size();
    for (size_t i = 0; i < 8; ++i) {
        file[file.size() - 24 + i] = static_cast<std::byte>(table_offset >> (8 * i));
    }
    const auto footer = std::span<const std::byte>(file).last(80).first(72);
    const uint64_t hash = xxh3_64(footer);
    for (size_t i = 0; i < 8; ++i) file[file.size() - 8 + i] = static_cast<std::byte>(hash >> (8 * i));
    return file;
}

TEST(BankTable, RoundTrip) {
    const TinyContainer tiny = tiny_container();
    const auto file = tiny.bank_bytes(kBank);
    EXPECT_EQ(file.size(), tiny.manifest.banks[kBank].shape.file_bytes());
    const auto table = parse_bank_table(file, tiny.manifest.banks[kBank], "b");
    ASSERT_TRUE(table) << table.error().text();
    ASSERT_EQ(table->size(), 2u);
    EXPECT_EQ((*table)[1].offset, tiny.manifest.banks[kBank].shape.record_bytes());
    EXPECT_EQ((*table)[1].hash, tiny.banks[kBank].table[1].hash);
    EXPECT_EQ(bank_table_hash(*table), tiny.manifest.banks[kBank].table_hash);
}

TEST(BankTable, EveryTruncatedLengthIsRefused) {
    const TinyContainer tiny = tiny_container();
    const auto whole = tiny.bank_bytes(kBank);
    for (size_t length = 0; length < whole.size(); ++length) {
        const std::vector<std::byte> part(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(length));
        ASSERT_FALSE(parse_bank_table(part, tiny.manifest.banks[kBank], "b")) << length;
    }
}

TEST(BankTable, EveryFlippedBitOfTableAndFooterIsFound) {
    const TinyContainer tiny = tiny_container();
    const auto whole = tiny.bank_bytes(kBank);
    for (size_t bit = 8 * (whole.size() - bank_tail_bytes(2)); bit < 8 * whole.size(); ++bit) {
        auto flipped = whole;
        flipped[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
        ASSERT_FALSE(parse_bank_table(flipped, tiny.manifest.banks[kBank], "b")) << bit;
    }
}

TEST(BankTable, ResealedEntriesAreStillChecked) {
    const struct {
        std::function<void(ExpertEntry&)> apply;
        const char* message;
    } changes[] = {
        {[](ExpertEntry& e) { e.file = 1; }, "layer 3 expert 0: file 1 and layout 0 need a newer waste"},
        {[](ExpertEntry& e) { e.layout = 1; }, "need a newer waste"},
        {[](ExpertEntry& e) { e.length -= kAlignment; }, "is not that of a record"},
        {[](ExpertEntry& e) { e.length = UINT64_MAX; }, "is not that of a record"},
        {[](ExpertEntry& e) { e.offset = 64; }, "offset 64 is not that of a record"},
        {[](ExpertEntry& e) { e.offset = kAlignment; }, "is not that of a record"},
    };
    for (const auto& change : changes) {
        TinyContainer tiny = tiny_container();
        change.apply(tiny.banks[kBank].table[0]);
        BankEntry bank = tiny.manifest.banks[kBank];
        const auto file = resealed(tiny.banks[kBank], bank);
        const std::string error = parse_error(file, bank);
        EXPECT_NE(error.find(change.message), std::string::npos) << error;
    }
}

TEST(BankTable, FooterMustAgreeWithTheManifest) {
    const TinyContainer tiny = tiny_container();
    const auto file = tiny.bank_bytes(kBank);
    const auto changed = [&](const std::function<void(BankEntry&)>& apply) {
        BankEntry bank = tiny.manifest.banks[kBank];
        apply(bank);
        return parse_error(file, bank);
    };
    EXPECT_EQ(changed([](BankEntry& b) { b.layer = 4; }),
              "b: layer is 3 in the footer and 4 in the manifest");
    EXPECT_NE(changed([](BankEntry& b) { b.shape.experts = 1; }).find("experts is 2"), std::string::npos);
    EXPECT_NE(changed([](BankEntry& b) { b.shape.input_size = 41; }).find("input_size is 40"),
              std::string::npos);
    EXPECT_NE(changed([](BankEntry& b) { b.shape.format = kernels::Format::q8; }).find("format is 3"),
              std::string::npos);
    EXPECT_NE(changed([](BankEntry& b) { ++b.table_hash; }).find("table hash"), std::string::npos);
    EXPECT_NE(changed([](BankEntry& b) { b.shape.experts = INT64_MAX; }).find("out of range"),
              std::string::npos);
}

TEST(BankTable, RecordsMayBeShared) {
    TinyContainer tiny = tiny_container();
    auto& bank = tiny.banks[kBank];
    bank.records.resize(bank.records.size() / 2);
    bank.table[1] = bank.table[0];
    tiny.seal();
    const BankEntry& entry = tiny.manifest.banks[kBank];
    EXPECT_LT(entry.bytes, entry.shape.file_bytes());
    const auto table = parse_bank_table(tiny.bank_bytes(kBank), entry, "b");
    ASSERT_TRUE(table) << table.error().text();
    EXPECT_EQ((*table)[0].offset, (*table)[1].offset);
    EXPECT_TRUE(parse_manifest(manifest_text(tiny.manifest), "m"));
}

TEST(BankTable, ARecordThatNoExpertNamesIsRefused) {
    const uint64_t record_bytes = tiny_container().manifest.banks[kBank].shape.record_bytes();
    const auto error_of = [](const std::function<void(TinyContainer::Bank&)>& apply) {
        TinyContainer tiny = tiny_container();
        apply(tiny.banks[kBank]);
        BankEntry bank = tiny.manifest.banks[kBank];
        return parse_error(resealed(tiny.banks[kBank], bank), bank);
    };
    const auto unnamed = [&](uint64_t record) {
        return "b: the record at byte " + std::to_string(record * record_bytes) +
               " belongs to no expert of the table";
    };
    EXPECT_EQ(error_of([](auto&) {}), "parsed");
    EXPECT_EQ(error_of([](auto& bank) { std::swap(bank.table[0], bank.table[1]); }), "parsed");
    EXPECT_EQ(error_of([](auto& bank) { bank.table[0] = bank.table[1]; }), unnamed(0));
    EXPECT_EQ(error_of([](auto& bank) { bank.table[1] = bank.table[0]; }), unnamed(1));
    EXPECT_EQ(error_of([&](auto& bank) { bank.records.resize(3 * record_bytes); }), unnamed(2));
    EXPECT_EQ(error_of([&](auto& bank) { bank.records.resize(2 * record_bytes + 1); }), unnamed(2));
    EXPECT_EQ(error_of([&](auto& bank) {
                  bank.records.resize(3 * record_bytes);
                  bank.table[1].offset = 2 * record_bytes;
              }),
              unnamed(1));
}

}  // namespace
}  // namespace waste::container
