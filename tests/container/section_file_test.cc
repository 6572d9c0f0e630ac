#include "container/section_file.h"

#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <string>

#include "container/checksum.h"
#include "container/section_format.h"
#include "tests/support/temp_dir.h"

namespace waste::test {
namespace {

using container::SectionCodec;
using container::SectionFile;
using container::SectionHeader;
using container::SectionRow;
using container::SectionWriter;

constexpr const char* kFingerprint = "0123456789abcdeffedcba9876543210";

std::vector<std::byte> some_bytes(size_t count, unsigned step) {
    std::vector<std::byte> bytes(count);
    for (size_t i = 0; i < count; i++) bytes[i] = static_cast<std::byte>(i * step >> 3);
    return bytes;
}

class SectionFiles : public ::testing::Test {
  protected:
    SectionFiles() {
        auto writer = SectionWriter::create(path(), kFingerprint);
        EXPECT_TRUE(writer->add({1, 0, 0}, 0, SectionCodec::zstd, text_));
        EXPECT_TRUE(writer->add({2, 3, 4096}, 1, SectionCodec::raw, numbers_));
        EXPECT_TRUE(writer->add({2, 4, 0}, 1, SectionCodec::raw, {}));
        EXPECT_TRUE(writer->commit());
    }
    std::string path(const std::string& name = "a.session") const { return directory_.file(name); }
    std::string content() const {
        std::ifstream file(path(), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    void write(const std::string& bytes) const {
        std::filesystem::remove(path());  // writing over it would wait for the drive
        std::ofstream(path(), std::ios::binary) << bytes;
    }
    /// Everything of the file, or the first error.
    Result<void> read_all() const {
        const auto file = SectionFile::open(path());
        if (!file) return pass(file);
        for (const container::SectionEntry& entry : file->entries()) {
            if (const auto ok = file->verify(entry, "it"); !ok) return ok;
            // The size is untrusted: nobody allocates what a section says before knowing what it must be.
            std::vector<std::byte> out(std::min<uint64_t>(entry.raw_bytes, 1 << 20));
            if (const auto ok = file->read(entry, "it", out); !ok) return ok;
        }
        return {};
    }
    /// With a changed table whose checksums hold.
    void change_table(const std::function<void(SectionHeader&, std::vector<SectionRow>&)>& change) const {
        std::string bytes = content();
        SectionHeader header;
        std::memcpy(&header, bytes.data(), sizeof(header));
        std::vector<SectionRow> rows(header.count);
        std::memcpy(rows.data(), bytes.data() + header.table_offset, rows.size() * sizeof(SectionRow));
        bytes.resize(header.table_offset);
        change(header, rows);
        bytes.append(reinterpret_cast<const char*>(rows.data()), rows.size() * sizeof(SectionRow));
        header.table_checksum = container::xxh3_64(std::as_bytes(std::span(rows)));
        std::memcpy(bytes.data(), &header, sizeof(header));
        const size_t checked = container::kSectionHeaderBytes - sizeof(uint64_t);
        const uint64_t sum = container::xxh3_64(std::string_view(bytes).substr(0, checked));
        std::memcpy(bytes.data() + checked, &sum, sizeof(sum));
        write(bytes);
    }

    TempDir directory_;
    const std::vector<std::byte> text_ = some_bytes(9000, 1), numbers_ = some_bytes(5000, 77);
};

TEST_F(SectionFiles, HoldWhatWasWritten) {
    const auto file = SectionFile::open(path());
    ASSERT_TRUE(file);
    EXPECT_EQ(file->fingerprint(), kFingerprint);
    ASSERT_EQ(file->entries().size(), 3u);
    std::vector<std::byte> out(text_.size());
    ASSERT_TRUE(file->read(file->entries()[0], "text", out));
    EXPECT_EQ(out, text_);
    EXPECT_LT(file->entries()[0].stored_bytes, text_.size());
    out.resize(numbers_.size());
    ASSERT_TRUE(file->read(*file->find({2, 3, 4096}), "numbers", out));
    EXPECT_EQ(out, numbers_);
    EXPECT_EQ(file->find({2, 3, 0}), nullptr);
    EXPECT_TRUE(read_all());
    EXPECT_FALSE(container::is_file(path() + ".partial"));
}

TEST_F(SectionFiles, CarrySectionsToAnotherFile) {
    const auto from = SectionFile::open(path());
    ASSERT_TRUE(from);
    auto writer = SectionWriter::create(path(), kFingerprint);  // in its own place
    ASSERT_TRUE(writer);
    ASSERT_TRUE(writer->carry(*from, from->entries()[1], {5, 6, 7}));
    ASSERT_TRUE(writer->carry(*from, from->entries()[0], from->entries()[0].name));
    EXPECT_EQ(writer->bytes_written(), 0u);
    ASSERT_TRUE(writer->commit());
    const auto to = SectionFile::open(path());
    ASSERT_TRUE(to);
    EXPECT_NE(to->id(), from->id());
    std::vector<std::byte> out(numbers_.size());
    ASSERT_TRUE(to->read(*to->find({5, 6, 7}), "numbers", out));
    EXPECT_EQ(out, numbers_);
    out.resize(text_.size());
    ASSERT_TRUE(from->read(from->entries()[0], "text", out)) << "what was replaced stays readable";
    ASSERT_TRUE(to->read(*to->find({1, 0, 0}), "text", out));
    EXPECT_EQ(out, text_);
}

TEST_F(SectionFiles, AWriterThatGoesLeavesTheOldFileAlone) {
    const std::string before = content();
    {
        auto writer = SectionWriter::create(path(), kFingerprint);
        ASSERT_TRUE(writer->add({1, 0, 0}, 0, SectionCodec::raw, numbers_));
        EXPECT_TRUE(container::is_file(path() + ".partial"));
    }
    EXPECT_FALSE(container::is_file(path() + ".partial"));
    EXPECT_EQ(content(), before);
}

TEST_F(SectionFiles, EveryFlippedBitIsFound) {
    const std::string good = content();
    for (size_t at = 0; at < good.size(); at++) {
        std::fstream file(path(), std::ios::binary | std::ios::in | std::ios::out);
        const auto put = [&](char byte) { file.seekp(static_cast<std::streamoff>(at)).put(byte).flush(); };
        put(static_cast<char>(good[at] ^ 1 << at % 8));
        ASSERT_FALSE(read_all()) << "byte " << at;
        put(good[at]);
    }
    EXPECT_TRUE(read_all());
}

TEST_F(SectionFiles, EveryOtherLengthIsFound) {
    const std::string good = content();
    for (size_t length = 0; length < good.size(); length += length < 5000 ? 101 : 997) {
        write(good.substr(0, length));
        ASSERT_FALSE(read_all()) << length;
    }
    write(good + '\0');
    EXPECT_FALSE(read_all());
}

TEST_F(SectionFiles, HostileTablesAreRefused) {
    using Rows = std::vector<SectionRow>;
    const std::string good = content();
    const std::function<void(SectionHeader&, Rows&)> changes[] = {
        [](SectionHeader& header, Rows&) { header.version = 2; },
        [](SectionHeader& header, Rows&) { header.count = 0xffffffff; },
        [](SectionHeader& header, Rows&) { header.table_offset = ~uint64_t{0}; },
        [](SectionHeader& header, Rows&) { header.table_offset = 4096; },
        [](SectionHeader& header, Rows& rows) { rows.erase(rows.begin() + 1), header.count--; },
        [](SectionHeader&, Rows& rows) { rows[1].offset = 0; },
        [](SectionHeader&, Rows& rows) { rows[1].offset += 4096; },
        [](SectionHeader&, Rows& rows) { rows[1].stored_bytes = ~uint64_t{0}; },
        [](SectionHeader&, Rows& rows) { rows[1].stored_bytes = rows[1].raw_bytes = ~uint64_t{0} - 4095; },
        [](SectionHeader&, Rows& rows) { rows[1].raw_bytes++; },
        [](SectionHeader&, Rows& rows) { rows[1].codec = 2; },
        [](SectionHeader&, Rows& rows) { rows[1].codec = 1; },  // not zstd at all
        [](SectionHeader&, Rows& rows) { rows[0].raw_bytes = uint64_t{1} << 62; },
        [](SectionHeader&, Rows& rows) { rows[0].raw_bytes--; },
    };
    size_t number = 0;
    for (const auto& change : changes) {
        write(good);
        change_table(change);
        const auto ok = read_all();
        ASSERT_FALSE(ok) << "change " << number;
        EXPECT_NE(ok.error().text().find("a.session"), std::string::npos);
        number++;
    }
}

TEST_F(SectionFiles, AFileThatIsNoneIsSaidToBeNone) {
    write(std::string(10000, 'x'));
    EXPECT_EQ(SectionFile::open(path()).error().message, "is not a session file");
    EXPECT_FALSE(SectionFile::open(directory_.path()));
    EXPECT_EQ(SectionFile::open(path("none")).error().kind, ErrorKind::not_found);
}

}  // namespace
}  // namespace waste::test
