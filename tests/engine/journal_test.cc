#include "engine/convert/journal.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>

#include "container/manifest.h"
#include "tests/support/temp_dir.h"

namespace waste::engine {
namespace {

std::string read_file(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

void write_file(const std::string& path, const std::string& content) {
    std::ofstream(path, std::ios::binary) << content;
}

class JournalTest : public ::testing::Test {
  protected:
    static constexpr const char* kIdentity = "0123456789abcdef0123456789abcdef";

    Result<Journal> open(const std::string& identity = kIdentity) {
        return Journal::open(dir_.path(), identity);
    }
    std::string path() const { return dir_.file(std::string(container::kJournalName)); }
    /// Three finished layers and two finished banks.
    std::string write_whole() {
        auto journal = open();
        EXPECT_TRUE(journal);
        EXPECT_TRUE(journal->finish_trunk_layer(-1, {11}));
        EXPECT_TRUE(journal->finish_trunk_layer(0, {1, 2, 3}));
        EXPECT_TRUE(journal->finish_bank(1, 77));
        EXPECT_TRUE(journal->finish_trunk_layer(1, {UINT64_MAX, 0}));
        EXPECT_TRUE(journal->finish_bank(2, 88));
        return read_file(path());
    }
    /// Entries a journal knows, as text.
    static std::string known(const Journal& journal) {
        std::ostringstream out;
        for (int64_t layer = -1; layer < 3; layer++) {
            if (const auto* hashes = journal.trunk_layer(layer)) {
                out << 't' << layer;
                for (const uint64_t hash : *hashes) out << ':' << hash;
                out << ' ';
            }
            if (const auto* hash = journal.bank(layer)) out << 'b' << layer << ':' << *hash << ' ';
        }
        return out.str();
    }

    test::TempDir dir_;
};

constexpr const char* kAllEntries = "t-1:11 t0:1:2:3 t1:18446744073709551615:0 b1:77 b2:88 ";

TEST_F(JournalTest, RemembersWhatWasFinished) {
    const std::string text = write_whole();
    EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 6) << text;
    for (int round = 0; round < 3; round++) {
        const auto again = open();
        ASSERT_TRUE(again);
        EXPECT_EQ(known(*again), kAllEntries);
    }
    EXPECT_EQ(read_file(path()), text);
}

TEST_F(JournalTest, GoesOnWhereItWas) {
    write_whole();
    {
        auto journal = open();
        ASSERT_TRUE(journal);
        EXPECT_TRUE(journal->finish_trunk_layer(2, {5}));
        EXPECT_TRUE(journal->finish_trunk_layer(0, {9}));  // done anew: the later line counts
    }
    const auto again = open();
    ASSERT_TRUE(again);
    EXPECT_EQ(*again->trunk_layer(2), std::vector<uint64_t>({5}));
    EXPECT_EQ(*again->trunk_layer(0), std::vector<uint64_t>({9}));
    EXPECT_EQ(*again->bank(2), 88u);
}

// A crash may cut the file anywhere. What is known then is a beginning of what was written, and the journal
// can be written on.
TEST_F(JournalTest, TruncationLeavesABeginning) {
    const std::string text = write_whole();
    const std::string in_order[] = {"t-1:11 ", "t0:1:2:3 ", "b1:77 ", "t1:18446744073709551615:0 ", "b2:88 "};
    // Each case costs several syncs, so not every length, but every one around the end of a line.
    for (size_t length = 0; length <= text.size(); length++) {
        const bool at_line_end = text.substr(length > 0 ? length - 1 : 0, 2).find('\n') != std::string::npos;
        if (length % 16 != 0 && !at_line_end) continue;
        write_file(path(), text.substr(0, length));
        auto journal = open();
        ASSERT_TRUE(journal) << length;
        const std::string found = known(*journal);
        // Whole lines count, and so does a last one that lacks only its newline.
        const auto begin = text.begin(), end = begin + static_cast<std::ptrdiff_t>(length);
        auto lines = std::count(begin, end, '\n');
        if (length < text.size() && text[length] == '\n') lines++;
        size_t bytes = 0;
        for (std::ptrdiff_t i = 0; i + 1 < lines; i++) {
            EXPECT_NE(found.find(in_order[i]), std::string::npos) << length << ": " << found;
            bytes += in_order[i].size();
        }
        EXPECT_EQ(found.size(), bytes) << length << ": " << found;
        ASSERT_TRUE(journal->finish_bank(0, 5)) << length;
        const auto again = open();
        ASSERT_TRUE(again) << length;
        EXPECT_EQ(known(*again).size(), found.size() + std::string("b0:5 ").size()) << length;
    }
}

// A damaged byte costs its line and what follows; it never becomes another entry.
TEST_F(JournalTest, DamagedLinesAreForgotten) {
    const std::string text = write_whole();
    const size_t head = text.find('\n') + 1;
    const auto whole = open();
    ASSERT_TRUE(whole);
    for (size_t at = head; at < text.size(); at += 3) {
        std::string damaged = text;
        damaged[at] = static_cast<char>(damaged[at] ^ (at % 2 ? 1 : 0x80));
        write_file(path(), damaged);
        const auto journal = open();
        ASSERT_TRUE(journal) << at;
        const std::string found = known(*journal);
        EXPECT_LT(found.size(), std::string(kAllEntries).size()) << at;
        for (int64_t layer = -1; layer < 3; layer++) {
            if (const auto* hashes = journal->trunk_layer(layer)) {
                EXPECT_EQ(*hashes, *whole->trunk_layer(layer)) << at;
            }
            if (const auto* hash = journal->bank(layer)) {
                EXPECT_EQ(*hash, *whole->bank(layer)) << at;
            }
        }
    }
}

TEST_F(JournalTest, AnotherConversionsJournalIsRefusedAndKept) {
    const std::string text = write_whole();
    const auto other = open("ffffffffffffffffffffffffffffffff");
    ASSERT_FALSE(other);
    EXPECT_EQ(other.error().kind, ErrorKind::invalid);
    EXPECT_NE(other.error().text().find(dir_.path()), std::string::npos);
    EXPECT_EQ(read_file(path()), text);
}

TEST_F(JournalTest, GarbageIsAnEmptyJournal) {
    for (const std::string& text :
         {std::string(), std::string("\n\n\n"), std::string(5000, '\0'), std::string("waste-convert\n"),
          std::string(10000, '#'), std::string("trunk 0 #\n")}) {
        write_file(path(), text);
        const auto journal = open();
        ASSERT_TRUE(journal) << text.substr(0, 10);
        EXPECT_EQ(known(*journal), "");
    }
}

}  // namespace
}  // namespace waste::engine
