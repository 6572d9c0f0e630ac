#include "container/file.h"

#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <csignal>
#include <fstream>

#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

using test::TempDir;

std::span<const std::byte> bytes_of(std::string_view text) {
    return std::as_bytes(std::span(text));
}

std::string_view text_of(std::span<const std::byte> bytes) {
    return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

std::string content(const std::string& path) {
    auto text = read_text_file(path, 1 << 20);
    return text ? *text : text.error().text();
}

TEST(File, WhatIsWrittenIsMappedAndRead) {
    const TempDir dir;
    const std::string path = dir.file("a");
    ASSERT_TRUE(write_file(path, "hello world"));
    EXPECT_FALSE(is_file(path + ".partial"));
    const auto mapped = MappedFile::open(path);
    ASSERT_TRUE(mapped);
    EXPECT_EQ(text_of(mapped->bytes()), "hello world");
    const auto readable = ReadableFile::open(path);
    ASSERT_TRUE(readable);
    EXPECT_EQ(readable->size(), 11u);
    std::string part(5, ' ');
    ASSERT_TRUE(readable->read_at(6, std::as_writable_bytes(std::span(part))));
    EXPECT_EQ(part, "world");
}

TEST(File, ReadPastTheEndSaysHowMuchIsMissing) {
    const TempDir dir;
    ASSERT_TRUE(write_file(dir.file("a"), "hello"));
    const auto file = ReadableFile::open(dir.file("a"));
    ASSERT_TRUE(file);
    std::string part(5, ' ');
    const auto read = file->read_at(3, std::as_writable_bytes(std::span(part)));
    ASSERT_FALSE(read);
    EXPECT_EQ(read.error().kind, ErrorKind::corrupt);
    EXPECT_NE(read.error().message.find("3 bytes are missing"), std::string::npos) << read.error().message;
}

TEST(File, EmptyFileIsAnEmptySpan) {
    const TempDir dir;
    ASSERT_TRUE(write_file(dir.file("a"), ""));
    const auto mapped = MappedFile::open(dir.file("a"));
    ASSERT_TRUE(mapped);
    EXPECT_TRUE(mapped->bytes().empty());
    mapped->advise_random();
    mapped->advise_soon(0, 100);
}

TEST(File, AdviceOutsideTheFileIsHarmless) {
    const TempDir dir;
    ASSERT_TRUE(write_file(dir.file("a"), "hello"));
    const auto mapped = MappedFile::open(dir.file("a"));
    ASSERT_TRUE(mapped);
    mapped->advise_soon(4, UINT64_MAX);
    mapped->advise_done(UINT64_MAX, UINT64_MAX);
    mapped->advise_done(0, 5);
    EXPECT_EQ(text_of(mapped->bytes()), "hello");
}

TEST(File, ErrorsNamePathAndReason) {
    const TempDir dir;
    ASSERT_TRUE(make_directory(dir.file("sub")));
    const auto missing = MappedFile::open(dir.file("none"));
    ASSERT_FALSE(missing);
    EXPECT_EQ(missing.error().kind, ErrorKind::not_found);
    EXPECT_EQ(missing.error().text(), dir.file("none") + ": cannot open: No such file or directory");
    const auto directory = MappedFile::open(dir.file("sub"));
    ASSERT_FALSE(directory);
    EXPECT_EQ(directory.error().text(), dir.file("sub") + ": is a directory, not a file");
    EXPECT_FALSE(ReadableFile::open(dir.file("sub")));
    EXPECT_FALSE(read_text_file(dir.file("sub"), 10));
    EXPECT_FALSE(file_size(dir.file("sub")));
    EXPECT_FALSE(MappedFile::open(""));
    EXPECT_FALSE(MappedFile::open(dir.file("none") + "/deeper"));
    EXPECT_FALSE(list_directory(dir.file("none")));
    EXPECT_FALSE(remove_file(dir.file("none")));
    EXPECT_FALSE(write_file(dir.file("none/a"), "x"));
}

TEST(File, PipesAreRefusedWithoutWaiting) {
    const TempDir dir;
    ASSERT_EQ(mkfifo(dir.file("pipe").c_str(), 0600), 0);
    const auto mapped = MappedFile::open(dir.file("pipe"));
    ASSERT_FALSE(mapped);
    EXPECT_NE(mapped.error().message.find("not a regular file"), std::string::npos);
}

TEST(File, TextFileOverItsLimitIsRefused) {
    const TempDir dir;
    ASSERT_TRUE(write_file(dir.file("a"), "12345"));
    EXPECT_TRUE(read_text_file(dir.file("a"), 5));
    EXPECT_FALSE(read_text_file(dir.file("a"), 4));
}

TEST(File, OffsetsBeyondFourGigabytes) {
    const TempDir dir;
    const uint64_t far = (uint64_t{5} << 30) + 3;
    auto out = OutputFile::create(dir.file("a"), OutputFile::Existing::replace);
    ASSERT_TRUE(out);
    ASSERT_TRUE(out->write_at(far, bytes_of("far")));
    ASSERT_TRUE(out->commit());
    const auto mapped = MappedFile::open(dir.file("a"));
    ASSERT_TRUE(mapped);
    EXPECT_EQ(mapped->bytes().size(), far + 3);
    EXPECT_EQ(text_of(mapped->bytes().subspan(far)), "far");
    EXPECT_FALSE(out->write_at(uint64_t{1} << 63, bytes_of("x")));
}

TEST(OutputFile, AppearsOnlyWithCommit) {
    const TempDir dir;
    const std::string path = dir.file("a");
    ASSERT_TRUE(write_file(path, "old"));
    {
        auto out = OutputFile::create(path, OutputFile::Existing::replace);
        ASSERT_TRUE(out);
        ASSERT_TRUE(out->write_at(0, bytes_of("newer")));
        ASSERT_TRUE(out->sync());
    }
    EXPECT_EQ(content(path), "old");
    EXPECT_EQ(content(path + ".partial"), "newer");
    auto again = OutputFile::create(path, OutputFile::Existing::resume);
    ASSERT_TRUE(again);
    ASSERT_TRUE(again->write_at(0, bytes_of("N")));
    ASSERT_TRUE(again->resize(7));
    ASSERT_TRUE(again->commit());
    EXPECT_EQ(content(path), std::string("Newer\0\0", 7));
    EXPECT_FALSE(is_file(path + ".partial"));
}

TEST(OutputFile, ReplaceForgetsThePartialFile) {
    const TempDir dir;
    ASSERT_TRUE(write_file(dir.file("a.partial"), "long leftover"));
    auto out = OutputFile::create(dir.file("a"), OutputFile::Existing::replace);
    ASSERT_TRUE(out);
    ASSERT_TRUE(out->write_at(0, bytes_of("x")));
    ASSERT_TRUE(out->commit());
    EXPECT_EQ(content(dir.file("a")), "x");
}

TEST(OutputFile, RenameOntoADirectoryIsAnError) {
    const TempDir dir;
    ASSERT_TRUE(make_directory(dir.file("a")));
    const auto written = write_file(dir.file("a"), "x");
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().place, dir.file("a"));
    EXPECT_FALSE(is_file(dir.file("a.partial")));
}

TEST(OutputFile, RunningOutOfRoomIsACapacityError) {
    const TempDir dir;
    auto out = OutputFile::create(dir.file("a"), OutputFile::Existing::replace);
    ASSERT_TRUE(out);
    rlimit before{};
    ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
    const rlimit tight{4096, before.rlim_max};
    const auto old_handler = std::signal(SIGXFSZ, SIG_IGN);
    ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &tight), 0);
    const auto written = out->write_at(0, bytes_of(std::string(10000, 'x')));
    setrlimit(RLIMIT_FSIZE, &before);
    std::signal(SIGXFSZ, old_handler);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().kind, ErrorKind::capacity);
    EXPECT_EQ(written.error().place, dir.file("a.partial"));
}

TEST(AppendFile, KeepsWholeLinesOnly) {
    const TempDir dir;
    {
        const auto journal = AppendFile::open(dir.file("j"));
        ASSERT_TRUE(journal);
        ASSERT_TRUE(journal->append("one"));
        ASSERT_TRUE(journal->append("two"));
    }
    std::ofstream(dir.file("j"), std::ios::app) << "torn" << std::string(9000, 'x');
    const auto journal = AppendFile::open(dir.file("j"));
    ASSERT_TRUE(journal);
    ASSERT_TRUE(journal->append("three"));
    EXPECT_EQ(content(dir.file("j")), "one\ntwo\nthree\n");
}

TEST(AppendFile, AFileOfOneTornLineBecomesEmpty) {
    const TempDir dir;
    std::ofstream(dir.file("j")) << "torn";
    ASSERT_TRUE(AppendFile::open(dir.file("j")));
    EXPECT_EQ(content(dir.file("j")), "");
}

TEST(Directory, ListsSortedNames) {
    const TempDir dir;
    for (const char* name : {"b", "a", ".c"}) ASSERT_TRUE(write_file(dir.file(name), "x"));
    ASSERT_TRUE(make_directory(dir.file("d")));
    ASSERT_TRUE(make_directory(dir.file("d"))) << "an existing directory is fine";
    EXPECT_FALSE(make_directory(dir.file("a"))) << "a file of that name is not";
    const auto names = list_directory(dir.path());
    ASSERT_TRUE(names);
    EXPECT_EQ(*names, (std::vector<std::string>{".c", "a", "b", "d"}));
    EXPECT_TRUE(is_directory(dir.file("d")) && !is_file(dir.file("d")));
    EXPECT_EQ(*file_size(dir.file("a")), 1u);
    ASSERT_TRUE(remove_file(dir.file("a")));
    EXPECT_FALSE(is_file(dir.file("a")));
}

TEST(Directory, FreeSpaceOfAPathThatDoesNotExistYet) {
    const TempDir dir;
    const auto here = free_space(dir.path());
    const auto later = free_space(dir.file("not/yet/there"));
    ASSERT_TRUE(here && later);
    EXPECT_GT(*here, 0u);
    EXPECT_GT(*later, 0u);
}

TEST(Path, JoinAndBaseName) {
    EXPECT_EQ(join_path("a", "b"), "a/b");
    EXPECT_EQ(join_path("a/", "b"), "a/b");
    EXPECT_EQ(join_path("", "b"), "b");
    EXPECT_EQ(base_name("/x/y.waste//"), "y.waste");
    EXPECT_EQ(base_name("y"), "y");
    EXPECT_EQ(base_name("/"), "/");
    EXPECT_EQ(base_name(""), "");
}

TEST(DirectoryLock, KeepsASecondOneOutWhileItLives) {
    const TempDir dir;
    {
        const auto first = DirectoryLock::acquire(dir.path());
        ASSERT_TRUE(first) << first.error().text();
        const auto second = DirectoryLock::acquire(dir.path());
        ASSERT_FALSE(second);
        EXPECT_EQ(second.error().kind, ErrorKind::invalid);
    }
    EXPECT_TRUE(DirectoryLock::acquire(dir.path()));
    EXPECT_FALSE(DirectoryLock::acquire(dir.file("missing")));
}

}  // namespace
}  // namespace waste::container
