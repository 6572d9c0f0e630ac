// What DriveReader makes of a drive that answers late, short, wrong or not at all.
#include <gtest/gtest.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "container/checksum.h"
#include "container/drive_reader.h"
#include "container/read_backend.h"
#include "tests/support/drive_reads.h"

namespace waste::container {
namespace {

using test::kBlock;
using test::random_text;
using test::Reads;
using test::wait_for_all;

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
        wakes_++;
        changed_.notify_all();
    }
    int wakes() {
        const std::lock_guard lock(mutex_);
        return wakes_;
    }
    void wait_for_wakes(int count) {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return wakes_ >= count; });
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
    int wakes_ = 0;
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
    reader_->hurry(reads[3]);  // while it waits
    fake.release();
    wait_for_all(*reader_, 4);
    EXPECT_EQ(fake.started(), (std::vector<uint64_t>{0, 8 * kBlock, 12 * kBlock, 4 * kBlock}));
}

/// Spare reads come one by one where little is in flight, behind all others, and can be had back until then.
TEST_F(FaultyReads, SpareOnesComeLastAndCanBeWithdrawn) {
    constexpr size_t kPieceBlocks = 4;
    FakeBackend& fake = start([this](const ReadPiece& piece) { return copy(piece); }, 8, true);
    Reads reads(7, kPieceBlocks * kBlock);
    for (size_t i = 0; i < 7; i++) {
        reads[i].offset = i * kPieceBlocks * kBlock;
        reads[i].verify = false;
    }
    const auto one = [&](size_t i) { return reads.all().subspan(i, 1); };
    const auto started = [&] {
        std::vector<size_t> numbers;
        for (const uint64_t offset : fake.started()) numbers.push_back(offset / (kPieceBlocks * kBlock));
        return numbers;
    };
    reader_->submit_spare(reads.all().first(5));
    fake.wait_for_started(kSpareReadDepth);
    reader_->submit(one(5));
    fake.wait_for_started(kSpareReadDepth + 1);
    EXPECT_EQ(started(), (std::vector<size_t>{0, 1, 2, 5})) << "it does not wait behind what is spare";
    reader_->hurry(reads[4]);
    fake.wait_for_started(kSpareReadDepth + 2);
    EXPECT_EQ(started().back(), 4u);
    reader_->withdraw(reads.all());
    for (const size_t i : {0U, 1U, 2U, 4U, 5U}) EXPECT_EQ(reads[i].state.load(), ReadState::pending) << i;
    EXPECT_EQ(reads[3].state.load(), ReadState::idle);
    reader_->submit_spare(one(6));
    fake.release();
    for (const size_t i : {0U, 1U, 2U, 4U, 5U, 6U}) reader_->wait(reads[i]);
    EXPECT_EQ(started(), (std::vector<size_t>{0, 1, 2, 5, 4, 6}));
    EXPECT_EQ(reads[3].state.load(), ReadState::idle);
}

TEST_F(FaultyReads, SpareOnesThatNeverBeganFailAtTheEnd) {
    FakeBackend& fake = start([this](const ReadPiece& piece) { return copy(piece); }, 1, true);
    Reads reads(2, 4 * kBlock);
    reader_->submit(reads.all().first(1));
    fake.wait_for_started(1);
    reader_->submit_spare(reads.all().subspan(1));
    const int wakes = fake.wakes();
    std::thread ending([this] { reader_.reset(); });
    fake.wait_for_wakes(wakes + 1);
    fake.release();
    ending.join();
    ASSERT_EQ(reads[1].state.load(), ReadState::failed);
    EXPECT_EQ(reads[1].error->kind, ErrorKind::interrupted);
}

/// The pieces of one read come from both drives, and what one of them cannot read the other can.
TEST_F(FaultyReads, CopiesShareTheWorkAndStandIn) {
    std::atomic<int> pieces_of[3] = {};
    const auto start_with_copy = [&](const FakeBackend::Answer& answer, int depth) {
        reader_ = std::move(
            *DriveReader::start_with(std::make_unique<FakeBackend>(answer), {"bank", "trunk"},
                                     {ReadMethod::automatic, true, depth, 4 * kBlock, {{0, 1, "copy"}}}));
    };
    start_with_copy(
        [&](const ReadPiece& piece) {
            pieces_of[piece.file]++;
            return copy(piece);
        },
        2);
    read();
    EXPECT_EQ(reads_[0].state.load(), ReadState::done);
    EXPECT_EQ(pieces_of[0] + pieces_of[2], 8);
    EXPECT_GE(pieces_of[0], 2);
    EXPECT_GE(pieces_of[2], 2);
    EXPECT_EQ(pieces_of[1], 0) << "of another file";
    for (const uint32_t broken : {0u, 2u}) {
        start_with_copy([&](const ReadPiece& piece) { return piece.file == broken ? -EIO : copy(piece); }, 2);
        read();
        EXPECT_EQ(reads_[0].state.load(), ReadState::done) << broken;
        EXPECT_GE(reader_->counters().retries, 2u);
    }
    start_with_copy([&](const ReadPiece& piece) { return piece.file == 1 ? copy(piece) : -EIO; }, 2);
    read();
    ASSERT_EQ(reads_[0].state.load(), ReadState::failed);
    EXPECT_TRUE(reads_[0].error->place == "bank" || reads_[0].error->place == "copy")
        << reads_[0].error->place;
    // A copy with other bytes is an error, like damage.
    start_with_copy(
        [&](const ReadPiece& piece) {
            const int64_t got = copy(piece);
            if (piece.file == 2) piece.to[0] ^= std::byte{1};
            return got;
        },
        2);
    read();
    ASSERT_EQ(reads_[0].state.load(), ReadState::failed);
    EXPECT_NE(reads_[0].error->message.find("there or in a copy"), std::string::npos);
}

TEST_F(FaultyReads, CopiesOfNothingAreRefused) {
    for (const FileCopy& wrong : {FileCopy{1, 1, "copy"}, FileCopy{0, 100, "copy"}}) {
        const auto reader = DriveReader::start_with(std::make_unique<FakeBackend>(nullptr), {"bank"},
                                                    {ReadMethod::automatic, true, 1, 0, {wrong}});
        ASSERT_FALSE(reader);
        EXPECT_EQ(reader.error().kind, ErrorKind::invalid);
    }
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
    const int wakes = fake.wakes();
    std::thread ending([this] { reader_.reset(); });
    fake.wait_for_wakes(wakes + 1);  // it has been told to stop
    EXPECT_EQ(reads_[0].state.load(), ReadState::pending);
    fake.release();
    ending.join();
    ASSERT_EQ(reads_[0].state.load(), ReadState::failed);
    EXPECT_EQ(reads_[0].error->kind, ErrorKind::interrupted);
}

/// Those who wait compare checksums too: whoever does it, each read ends once and with the right verdict.
TEST_F(FaultyReads, ManyThatWaitShareTheChecks) {
    constexpr size_t kReads = 400;
    start([this](const ReadPiece& piece) { return copy(piece); }, 8);
    Reads many(kReads, 2 * kBlock);
    for (size_t i = 0; i < kReads; i++) {
        many[i].offset = i % 31 * kBlock;
        many[i].hash = xxh3_64(std::string_view(text_).substr(many[i].offset, 2 * kBlock)) + (i % 7 == 0);
    }
    std::vector<std::thread> waiting;
    for (size_t t = 0; t < 3; t++) {
        waiting.emplace_back([&, t] {
            reader_->submit(many.all().subspan(100 * t, 100));
            for (size_t i = 100 * t; i < 100 * (t + 1); i++) reader_->wait(many[i]);
        });
    }
    reader_->submit(many.all().subspan(300));
    wait_for_all(*reader_, kReads);
    for (std::thread& thread : waiting) thread.join();
    EXPECT_EQ(reader_->counters().reads, kReads);
    for (size_t i = 0; i < kReads; i++) {
        EXPECT_EQ(many[i].state.load(), i % 7 == 0 ? ReadState::failed : ReadState::done) << i;
    }
}

}  // namespace
}  // namespace waste::container
