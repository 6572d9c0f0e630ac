#include "container/drive_reader.h"

#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstddef>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <thread>

#include "container/checksum.h"
#include "container/file.h"
#include "container/manifest.h"
#include "container/memory.h"
#include "container/read_backend.h"
#include "tests/support/temp_dir.h"

namespace waste::container {
namespace {

using test::TempDir;

constexpr uint64_t kBlock = kAlignment;

std::string random_text(size_t bytes, uint32_t seed) {
    std::mt19937_64 random(seed);
    std::string text(bytes, '\0');
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        const uint64_t value = random();
        std::memcpy(text.data() + i, &value, 8);
    }
    return text;
}

/// Reads with memory of their own, side by side.
class Reads {
  public:
    Reads(size_t count, uint64_t bytes_each)
        : memory_(*SystemMemory::map(count * bytes_each)), reads_(count) {
        for (size_t i = 0; i < count; i++) {
            reads_[i].to = memory_.data() + i * bytes_each;
            reads_[i].length = bytes_each;
            pointers_.push_back(&reads_[i]);
        }
    }
    DriveRead& operator[](size_t i) { return reads_[i]; }
    size_t size() const { return reads_.size(); }
    std::span<DriveRead* const> all() const { return pointers_; }
    std::string_view text(size_t i) const {
        return {reinterpret_cast<const char*>(reads_[i].to), reads_[i].length};
    }

  private:
    SystemMemory memory_;
    std::deque<DriveRead> reads_;
    std::vector<DriveRead*> pointers_;
};

void wait_for(const DriveRead& read) {
    ReadState state;
    while ((state = read.state.load(std::memory_order_acquire)) == ReadState::pending) read.state.wait(state);
}

void wait_for_all(const DriveReader& reader, uint32_t count) {
    for (uint32_t landed = reader.landed(); landed < count; landed = reader.landed()) {
        reader.wait_for_landing(landed);
    }
}

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

/// A file in memory, and whatever goes wrong with it. Pieces end when the test says so, or at once.
class FakeBackend final : public ReadBackend {
  public:
    using Answer = std::function<int64_t(const ReadPiece&)>;
    explicit FakeBackend(Answer answer, bool held = false) : answer_(std::move(answer)), held_(held) {}

    void start(const ReadPiece& piece) override {
        const std::lock_guard lock(mutex_);
        pieces_.push_back(piece);
        started_.push_back(piece.offset);
        changed_.notify_all();
    }
    size_t collect(std::span<PieceEnd> ends, bool wait) override {
        std::unique_lock lock(mutex_);
        if (wait) changed_.wait(lock, [this] { return woken_ || (!held_ && !pieces_.empty()); });
        woken_ = false;
        size_t count = 0;
        while (!held_ && count < ends.size() && !pieces_.empty()) {
            ends[count++] = {pieces_.front().id, answer_(pieces_.front())};
            pieces_.pop_front();
        }
        return count;
    }
    void wake() override {
        const std::lock_guard lock(mutex_);
        woken_ = true;
        changed_.notify_all();
    }

    void wait_for_started(size_t count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return started_.size() >= count; });
    }
    void release() {
        const std::lock_guard lock(mutex_);
        held_ = false;
        changed_.notify_all();
    }
    std::vector<uint64_t> started() {
        const std::lock_guard lock(mutex_);
        return started_;
    }

  private:
    Answer answer_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<ReadPiece> pieces_;
    std::vector<uint64_t> started_;  ///< offsets, in order
    bool held_;
    bool woken_ = false;
};

class FaultyReads : public testing::Test {
  protected:
    /// Copies at most `bytes` of the text: what a drive does, or a part of it.
    int64_t copy(const ReadPiece& piece, uint64_t bytes) const {
        const uint64_t count =
            std::min({bytes, piece.length, text_.size() - std::min(text_.size(), piece.offset)});
        std::memcpy(piece.to, text_.data() + piece.offset, count);
        return static_cast<int64_t>(count);
    }
    int64_t copy(const ReadPiece& piece) const { return copy(piece, piece.length); }

    FakeBackend& start(FakeBackend::Answer answer, int depth = 2, bool held = false) {
        auto backend = std::make_unique<FakeBackend>(std::move(answer), held);
        FakeBackend& fake = *backend;
        reader_ = std::move(*DriveReader::start_with(std::move(backend), {"bank"},
                                                     {ReadMethod::automatic, true, depth, 4 * kBlock}));
        return fake;
    }
    void read() {
        reads_[0].hash = xxh3_64(text_);
        reader_->submit(reads_.all());
        wait_for_all(*reader_, 1);
    }

    const std::string text_ = random_text(32 * kBlock, 5);
    Reads reads_{1, 32 * kBlock};
    std::unique_ptr<DriveReader> reader_;
};

TEST_F(FaultyReads, ShortPiecesGoOn) {
    start([this](const ReadPiece& piece) { return copy(piece, kBlock); });
    read();
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_EQ(reads_.text(0), text_);
    EXPECT_EQ(reader_->counters().bytes, text_.size());
    EXPECT_EQ(reader_->counters().retries, 0u);
}

TEST_F(FaultyReads, PartsOfABlockAreReadAgain) {
    start(
        [this, odd = false](const ReadPiece& piece) mutable {
            odd = !odd;
            return copy(piece, odd ? kBlock + 1000 : piece.length);
        },
        1);
    read();
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_EQ(reads_.text(0), text_);
}

TEST_F(FaultyReads, InterruptionsPass) {
    start([this, count = 0](const ReadPiece& piece) mutable -> int64_t {
        count++;
        return count % 3 == 0 ? copy(piece) : count % 3 == 1 ? -EINTR : -EAGAIN;
    });
    read();
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_EQ(reader_->counters().retries, 16u);
}

TEST_F(FaultyReads, InterruptionsThatNeverPassAreAnError) {
    start([](const ReadPiece&) -> int64_t { return -EAGAIN; });
    read();
    EXPECT_EQ(reads_[0].state.load(), ReadState::failed);
}

TEST_F(FaultyReads, ADriveErrorIsRetriedOnce) {
    start([this, failures = 0](const ReadPiece& piece) mutable -> int64_t {
        return piece.offset == 8 * kBlock && failures++ == 0 ? -EIO : copy(piece);
    });
    read();
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_EQ(reads_.text(0), text_);
    EXPECT_EQ(reader_->counters().retries, 1u);
}

TEST_F(FaultyReads, ADriveErrorThatStaysNamesFileAndOffset) {
    FakeBackend& fake =
        start([this](const ReadPiece& piece) { return piece.offset == 8 * kBlock ? -EIO : copy(piece); });
    read();
    ASSERT_EQ(reads_[0].state.load(), ReadState::failed);
    EXPECT_EQ(reads_[0].error->kind, ErrorKind::io);
    EXPECT_EQ(reads_[0].error->text(), "bank: cannot read at offset 32768: Input/output error");
    EXPECT_LT(fake.started().size(), 8u) << "the rest of a failed read is left";
    // The reader goes on, and the read can be asked for again.
    reads_[0].length = 4 * kBlock;
    reads_[0].hash = xxh3_64(std::string_view(text_).substr(0, 4 * kBlock));
    reader_->submit(reads_.all());
    wait_for_all(*reader_, 2);
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_FALSE(reads_[0].error);
}

TEST_F(FaultyReads, OneFlippedBitIsNoticed) {
    start([this](const ReadPiece& piece) {
        const int64_t got = copy(piece);
        if (piece.offset == 16 * kBlock) piece.to[77] ^= std::byte{4};
        return got;
    });
    read();
    ASSERT_EQ(reads_[0].state.load(), ReadState::failed);
    EXPECT_EQ(reads_[0].error->kind, ErrorKind::corrupt);
}

TEST_F(FaultyReads, RequestsThatMakeNoSenseFail) {
    FakeBackend& fake = start([this](const ReadPiece& piece) { return copy(piece); });
    Reads reads(6, kBlock);
    reads[0].file = 1;
    reads[1].offset = 5;
    reads[2].length = 100;
    reads[3].to += 8;
    reads[4].offset = uint64_t{1} << 63;
    reads[5].length = 0;
    reads[5].hash = xxh3_64("");
    reader_->submit(reads.all());
    wait_for_all(*reader_, 6);
    for (size_t i = 0; i < 5; i++) {
        ASSERT_EQ(reads[i].state.load(), ReadState::failed) << i;
        EXPECT_EQ(reads[i].error->kind, ErrorKind::invalid);
    }
    EXPECT_EQ(reads[5].state.load(), ReadState::done) << "nothing is easily read";
    EXPECT_TRUE(fake.started().empty());
}

TEST_F(FaultyReads, UrgentOnesGoFirst) {
    FakeBackend& fake = start([this](const ReadPiece& piece) { return copy(piece); }, 1, true);
    Reads reads(4, 4 * kBlock);
    for (size_t i = 0; i < 4; i++) {
        reads[i].offset = i * 4 * kBlock;
        reads[i].verify = false;
    }
    reads[2].urgent = true;
    reader_->submit(reads.all().first(1));
    fake.wait_for_started(1);
    reader_->submit(reads.all().subspan(1));
    reads[3].urgent = true;  // while it waits
    fake.release();
    wait_for_all(*reader_, 4);
    EXPECT_EQ(fake.started(), (std::vector<uint64_t>{0, 8 * kBlock, 12 * kBlock, 4 * kBlock}));
}

TEST_F(FaultyReads, NoMoreInFlightThanTheDepth) {
    FakeBackend& fake = start([this](const ReadPiece& piece) { return copy(piece); }, 3, true);
    reads_[0].hash = xxh3_64(text_);
    reader_->submit(reads_.all());
    fake.wait_for_started(3);
    EXPECT_EQ(fake.started().size(), 3u);
    fake.release();
    wait_for_all(*reader_, 1);
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_EQ(fake.started().size(), 8u);
}

TEST_F(FaultyReads, TheEndWaitsForWhatIsInFlight) {
    FakeBackend& fake = start([this](const ReadPiece& piece) { return copy(piece); }, 2, true);
    reader_->submit(reads_.all());
    fake.wait_for_started(2);
    std::thread ending([this] { reader_.reset(); });
    EXPECT_EQ(reads_[0].state.load(), ReadState::pending);
    fake.release();
    ending.join();
    ASSERT_EQ(reads_[0].state.load(), ReadState::failed);
    EXPECT_EQ(reads_[0].error->kind, ErrorKind::interrupted);
}

}  // namespace
}  // namespace waste::container
