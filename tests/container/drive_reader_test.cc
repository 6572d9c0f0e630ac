#include "container/drive_reader.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <thread>

#include "container/checksum.h"
#include "container/file.h"
#include "tests/support/drive_reads.h"
#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

using test::kBlock;
using test::random_text;
using test::Reads;
using test::TempDir;
using test::wait_for;
using test::wait_for_all;

struct Way {
    ReadMethod method;
    bool direct;
};

std::string way_name(const testing::TestParamInfo<Way>& info) {
    return std::string(info.param.method == ReadMethod::threads ? "Threads" : "Uring") +
           (info.param.direct ? "Direct" : "Buffered");
}

class DriveReaderWays : public testing::TestWithParam<Way> {
  protected:
    void SetUp() override {
        text_[0] = random_text(300 * kBlock, 1);
        text_[1] = random_text(77 * kBlock, 2);
        for (size_t i = 0; i < 2; i++) ASSERT_TRUE(write_file(path(i), text_[i]));
    }
    std::string path(size_t i) const { return dir_.file(std::to_string(i)); }

    std::unique_ptr<DriveReader> start(int depth = 0, uint64_t piece_bytes = 0) {
        auto reader = DriveReader::start({path(0), path(1)},
                                         {GetParam().method, GetParam().direct, depth, piece_bytes});
        if (reader) return std::move(*reader);
        ADD_FAILURE() << reader.error().text();
        return nullptr;
    }
    static bool refused() {
        const auto reader = DriveReader::start({}, {GetParam().method});
        return !reader && reader.error().kind == ErrorKind::unsupported;
    }

    const TempDir dir_;
    std::string text_[2];
};

TEST_P(DriveReaderWays, BytesAreThoseOfTheFile) {
    if (refused()) GTEST_SKIP() << "the kernel does not grant io_uring";
    for (const uint64_t piece_bytes : {kBlock, 3 * kBlock, 64 * kBlock, uint64_t{0}}) {
        for (const int depth : {1, 3, 32}) {
            const auto reader = start(depth, piece_bytes);
            ASSERT_TRUE(reader);
            Reads reads(40, 29 * kBlock);
            for (size_t i = 0; i < reads.size(); i++) {
                reads[i].file = i % 3 == 0;
                reads[i].offset = (i * 7 % 49) * kBlock;
                if (reads[i].file == 0) reads[i].offset += i * kBlock;
                reads[i].length = (1 + i % 29) * kBlock;
                reads[i].hash =
                    xxh3_64(std::string_view(text_[reads[i].file]).substr(reads[i].offset, reads[i].length));
            }
            reader->submit(reads.all());
            wait_for_all(*reader, 40);
            for (size_t i = 0; i < reads.size(); i++) {
                ASSERT_EQ(reads[i].state.load(), ReadState::done) << reads[i].error->text();
                ASSERT_EQ(reads.text(i),
                          std::string_view(text_[reads[i].file]).substr(reads[i].offset, reads[i].length));
            }
            EXPECT_EQ(reader->counters().reads, 40u);
            EXPECT_GT(reader->counters().busy_nanoseconds, 0u);
        }
    }
}

TEST_P(DriveReaderWays, AThousandReadsFromTwoThreads) {
    if (refused()) GTEST_SKIP() << "the kernel does not grant io_uring";
    const auto reader = start(4, 2 * kBlock);
    ASSERT_TRUE(reader);
    Reads reads(1000, 3 * kBlock);
    for (size_t i = 0; i < reads.size(); i++) {
        reads[i].offset = i * 7 % 297 * kBlock;
        reads[i].hash = xxh3_64(std::string_view(text_[0]).substr(reads[i].offset, reads[i].length));
    }
    std::thread other([&] { reader->submit(reads.all().first(500)); });
    for (size_t i = 500; i < 1000; i += 4) reader->submit(reads.all().subspan(i, 4));
    other.join();
    for (size_t i = 0; i < reads.size(); i++) {
        wait_for(reads[i]);
        ASSERT_EQ(reads[i].state.load(), ReadState::done) << i << ": " << reads[i].error->text();
    }
    wait_for_all(*reader, 1000);
    EXPECT_EQ(reader->counters().bytes, 3000 * kBlock);
}

TEST_P(DriveReaderWays, AFileThatShrankIsTruncated) {
    if (refused()) GTEST_SKIP() << "the kernel does not grant io_uring";
    const auto reader = start(2, 2 * kBlock);
    ASSERT_TRUE(reader);
    ASSERT_EQ(truncate(path(1).c_str(), static_cast<off_t>(10 * kBlock + 100)), 0);
    Reads reads(2, 8 * kBlock);
    for (size_t i = 0; i < 2; i++) {
        reads[i].file = 1;
        reads[i].offset = (i == 0 ? 4 : 40) * kBlock;
    }
    reader->submit(reads.all());
    wait_for_all(*reader, 2);
    for (size_t i = 0; i < 2; i++) {
        ASSERT_EQ(reads[i].state.load(), ReadState::failed);
        EXPECT_EQ(reads[i].error->kind, ErrorKind::corrupt);
        EXPECT_EQ(reads[i].error->place, path(1));
        EXPECT_NE(reads[i].error->message.find("truncated"), std::string::npos) << reads[i].error->text();
    }
    EXPECT_NE(reads[0].error->message.find("ends at byte 41060, 8092 bytes"), std::string::npos)
        << reads[0].error->text();
}

TEST_P(DriveReaderWays, ChangedBytesDoNotMatchTheirChecksum) {
    if (refused()) GTEST_SKIP() << "the kernel does not grant io_uring";
    const auto reader = start();
    ASSERT_TRUE(reader);
    Reads reads(2, 8 * kBlock);
    for (size_t i = 0; i < 2; i++)
        reads[i].hash = xxh3_64(std::string_view(text_[0]).substr(0, 8 * kBlock)) ^ 1;
    reads[1].verify = false;
    reader->submit(reads.all());
    wait_for_all(*reader, 2);
    ASSERT_EQ(reads[0].state.load(), ReadState::failed);
    EXPECT_EQ(reads[0].error->kind, ErrorKind::corrupt);
    EXPECT_EQ(reads[0].error->text(), path(0) + ": bytes 0 to 32768 do not match their checksum");
    EXPECT_EQ(reads[1].state.load(), ReadState::done);
}

TEST_P(DriveReaderWays, EndsWhileReading) {
    if (refused()) GTEST_SKIP() << "the kernel does not grant io_uring";
    Reads reads(200, 20 * kBlock);
    for (size_t i = 0; i < reads.size(); i++) reads[i].verify = false;
    auto reader = start(2, kBlock);
    ASSERT_TRUE(reader);
    reader->submit(reads.all());
    wait_for(reads[0]);
    reader.reset();
    size_t interrupted = 0;
    for (size_t i = 0; i < reads.size(); i++) {
        const ReadState state = reads[i].state.load();
        if (state == ReadState::done) {
            EXPECT_EQ(reads.text(i), std::string_view(text_[0]).substr(0, 20 * kBlock));
            continue;
        }
        ASSERT_EQ(state, ReadState::failed);
        EXPECT_EQ(reads[i].error->kind, ErrorKind::interrupted);
        interrupted++;
    }
    EXPECT_LT(interrupted, 200u);
}

INSTANTIATE_TEST_SUITE_P(All, DriveReaderWays,
                         testing::Values(Way{ReadMethod::io_uring, true}, Way{ReadMethod::io_uring, false},
                                         Way{ReadMethod::threads, true}, Way{ReadMethod::threads, false}),
                         way_name);

TEST(DriveReader, MissingFilesAreNamed) {
    const TempDir dir;
    const auto reader = DriveReader::start({dir.file("none")}, {});
    ASSERT_FALSE(reader);
    EXPECT_EQ(reader.error().kind, ErrorKind::not_found);
    EXPECT_EQ(reader.error().place, dir.file("none"));
    EXPECT_FALSE(DriveReader::start({dir.path()}, {}));
}

TEST(DriveReader, ImpossibleOptionsAreRefused) {
    EXPECT_FALSE(DriveReader::start({}, {ReadMethod::automatic, true, -1, 0}));
    EXPECT_FALSE(DriveReader::start({}, {ReadMethod::automatic, true, 1 << 20, 0}));
    EXPECT_FALSE(DriveReader::start({}, {ReadMethod::automatic, true, 0, 1000}));
}

TEST(DriveReader, AFileSystemWithoutDirectReadsIsReadThroughTheCache) {
    std::string path = "/dev/shm/waste-test-XXXXXX";
    const int descriptor = mkstemp(path.data());
    if (descriptor < 0) GTEST_SKIP() << "there is no /dev/shm to write to";
    close(descriptor);
    const std::string text = random_text(9 * kBlock, 3);
    ASSERT_TRUE(write_file(path, text));
    {
        const auto reader = DriveReader::start({path}, {});
        ASSERT_TRUE(reader) << reader.error().text();
        Reads reads(1, 9 * kBlock);
        reads[0].hash = xxh3_64(text);
        (*reader)->submit(reads.all());
        wait_for_all(**reader, 1);
        EXPECT_EQ(reads[0].state.load(), ReadState::done);
        if (!(*reader)->direct()) {
            EXPECT_NE((*reader)->description().find("through the page cache (" + path), std::string::npos)
                << (*reader)->description();
        }
    }
    ASSERT_TRUE(remove_file(path));
}

/// Makes the kernel refuse rings to this thread and those that it starts, as sandboxes do. False where that is refused.
bool forbid_rings() {
    sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_io_uring_setup, 0, 1),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    const sock_fprog program{static_cast<unsigned short>(std::size(filter)), filter};
    return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
           prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program, 0, 0) == 0;
}

TEST(DriveReader, ThreadsReadWhereRingsAreRefused) {
    const TempDir dir;
    const std::string text = random_text(9 * kBlock, 4);
    ASSERT_TRUE(write_file(dir.file("a"), text));
    bool forbidden = false;
    std::thread([&] {
        forbidden = forbid_rings();
        if (!forbidden) return;
        const auto refused = DriveReader::start({dir.file("a")}, {ReadMethod::io_uring});
        ASSERT_FALSE(refused);
        EXPECT_EQ(refused.error().kind, ErrorKind::unsupported);
        EXPECT_EQ(refused.error().text(),
                  "io_uring is not available here (cannot create a ring: Operation not permitted)");
        const auto reader = DriveReader::start({dir.file("a")}, {});
        ASSERT_TRUE(reader) << reader.error().text();
        EXPECT_EQ((*reader)->description().find("threads (io_uring is not available here"), 0u)
            << (*reader)->description();
        Reads reads(1, 9 * kBlock);
        reads[0].hash = xxh3_64(text);
        (*reader)->submit(reads.all());
        wait_for_all(**reader, 1);
        EXPECT_EQ(reads[0].state.load(), ReadState::done);
    }).join();
    if (!forbidden) GTEST_SKIP() << "this system does not filter system calls";
}

}  // namespace
}  // namespace waste::container
