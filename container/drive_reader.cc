#include "container/drive_reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "container/manifest.h"
#include "container/read_backend.h"
#include "container/read_files.h"
#include "container/read_queue.h"
#include "container/read_threads.h"
#include "container/system.h"
#include "container/uring.h"

namespace waste::container {
namespace {

using Clock = std::chrono::steady_clock;

constexpr uint64_t kMostPieceBytes = uint64_t{1} << 30;  // Linux moves less than 2 GiB in one call
constexpr int kSpins = 4000;
constexpr size_t kEndsAtOnce = 64;

std::string size_text(uint64_t bytes) {
    constexpr uint64_t kMib = uint64_t{1} << 20;
    return bytes % kMib == 0 ? fmt::format("{} MiB", bytes / kMib) : fmt::format("{} KiB", bytes >> 10);
}

Result<DriveReaderOptions> chosen(DriveReaderOptions options, size_t files) {
    if (options.depth == 0) options.depth = kDefaultReadDepth;
    if (options.piece_bytes == 0) options.piece_bytes = kDefaultPieceBytes;
    if (options.depth < 0 || options.depth > kMostReadDepth) {
        return fail(ErrorKind::invalid, "",
                    fmt::format("a read depth of {} is not from 1 to {}", options.depth, kMostReadDepth));
    }
    if (options.piece_bytes % kAlignment != 0 || options.piece_bytes > kMostPieceBytes) {
        return fail(ErrorKind::invalid, "",
                    fmt::format("pieces of {} bytes: not a multiple of {} up to {}", options.piece_bytes,
                                kAlignment, kMostPieceBytes));
    }
    for (const FileCopy& copy : options.copies) {
        if (copy.file < files && copy.drive <= kMostOtherDrives) continue;
        return fail(
            ErrorKind::invalid, copy.path,
            fmt::format("a copy of file {} on drive {}, of {} files and at most {} drives beside the first",
                        copy.file, copy.drive, files, kMostOtherDrives));
    }
    return options;
}

/// Its name, for description().
Result<std::string> make_backend(ReadMethod method, const std::vector<ReadFile>& files, int depth,
                                 std::unique_ptr<ReadBackend>& backend) {
    std::string name = "threads";
    if (method != ReadMethod::threads) {
        auto ring = make_uring_backend(files, depth);
        if (ring) {
            backend = std::move(*ring);
            return std::string("io_uring");
        }
        if (method == ReadMethod::io_uring) return pass(ring);
        name = fmt::format("threads ({})", ring.error().message);
    }
    auto threads = make_thread_backend(files, depth);
    if (!threads) return pass(threads);
    backend = std::move(*threads);
    return name;
}

}  // namespace

/// What is read from. It must not move, as the backend refers to the files.
struct DriveReader::Source {
    std::vector<std::string> paths;  ///< those of the copies last
    ReadFiles opened;                ///< none where the backend is the caller's
    std::unique_ptr<ReadBackend> backend;
    std::string description;
};

class DriveReader::Loop {
  public:
    Loop(std::unique_ptr<Source> source, const DriveReaderOptions& options)
        : source_(std::move(source)),
          copied_(!options.copies.empty()),
          queue_(source_->paths, options.copies, options.depth, options.piece_bytes),
          thread_([this] { run(); }) {}
    Loop(const Loop&) = delete;
    Loop& operator=(const Loop&) = delete;
    ~Loop() {
        {
            const std::lock_guard lock(mutex_);
            stopping_ = true;
        }
        source_->backend->wake();
        thread_.join();
    }

    void submit(std::span<DriveRead* const> reads);
    void submit_spare(std::span<DriveRead* const> reads);
    void withdraw(std::span<DriveRead* const> reads);
    void hurry(DriveRead& read);
    uint32_t landed() const { return landed_.load(std::memory_order_acquire); }
    void wait_for_landing(uint32_t seen);
    void wait(const DriveRead& read);
    DriveReaderCounters counters() const;
    const Source& source() const { return *source_; }

  private:
    void run();
    void queue_up(std::span<DriveRead* const> reads, std::vector<DriveRead*>& queue);
    bool take_submitted();
    bool take_spare();
    bool collect(bool wait);
    void pass_on_complete();
    bool anything_arrived() const { return arrived_count_.load(std::memory_order_acquire) > 0; }
    DriveRead* take_arrived();
    bool finish_one();
    void tell_waiters();
    void count_time();

    const std::unique_ptr<Source> source_;
    const bool copied_;  ///< some file has a copy
    std::atomic<uint32_t> landed_{0};
    std::atomic<uint64_t> reads_{0};
    std::atomic<uint64_t> bytes_{0};
    std::atomic<uint64_t> retries_{0};
    std::atomic<uint64_t> busy_nanoseconds_{0};

    std::mutex mutex_;                   ///< guards the next four
    std::vector<DriveRead*> submitted_;  ///< not yet seen by the I/O thread
    std::vector<DriveRead*> spare_;      ///< it may take one where it has nothing else to do
    bool sleeping_ = false;              ///< the I/O thread may wait for the backend, and has to be woken
    bool stopping_ = false;

    std::mutex arrived_mutex_;         ///< guards the next one
    std::vector<DriveRead*> arrived_;  ///< complete; their checksums are still to be compared
    std::atomic<size_t> arrived_count_{0};
    std::atomic<uint32_t> events_{0};  ///< arrivals and ends, modulo 2^32

    // The I/O thread's own.
    ReadQueue queue_;
    std::vector<DriveRead*> taken_;
    bool busy_ = false;  ///< since busy_since_ a piece is in flight
    Clock::time_point busy_since_;

    std::thread thread_;  ///< last: it uses all of the above
};

void DriveReader::Loop::queue_up(std::span<DriveRead* const> reads, std::vector<DriveRead*>& queue) {
    for (DriveRead* read : reads) read->state.store(ReadState::pending, std::memory_order_relaxed);
    bool wake;
    {
        const std::lock_guard lock(mutex_);
        queue.insert(queue.end(), reads.begin(), reads.end());
        wake = std::exchange(sleeping_, false);
    }
    if (wake) source_->backend->wake();
}

void DriveReader::Loop::submit(std::span<DriveRead* const> reads) {
    queue_up(reads, submitted_);
}

void DriveReader::Loop::submit_spare(std::span<DriveRead* const> reads) {
    queue_up(reads, spare_);
}

void DriveReader::Loop::withdraw(std::span<DriveRead* const> reads) {
    const std::lock_guard lock(mutex_);
    for (DriveRead* read : reads) {
        if (std::erase(spare_, read) > 0) read->state.store(ReadState::idle, std::memory_order_relaxed);
    }
}

void DriveReader::Loop::hurry(DriveRead& read) {
    read.urgent.store(true, std::memory_order_relaxed);
    bool wake = false;
    {
        const std::lock_guard lock(mutex_);
        if (std::erase(spare_, &read) > 0) {
            submitted_.push_back(&read);
            wake = std::exchange(sleeping_, false);
        }
    }
    if (wake) source_->backend->wake();
}

void DriveReader::Loop::wait_for_landing(uint32_t seen) {
    for (int spins = 0;; spins++) {
        const uint32_t events = events_.load(std::memory_order_acquire);
        if (landed() != seen) return;
        if (finish_one()) continue;
        if (spins >= kSpins) events_.wait(events, std::memory_order_acquire);
    }
}

void DriveReader::Loop::wait(const DriveRead& read) {
    const auto pending = [&] { return read.state.load(std::memory_order_acquire) == ReadState::pending; };
    while (pending() && finish_one()) {
    }
    read.state.wait(ReadState::pending, std::memory_order_acquire);
}

DriveReaderCounters DriveReader::Loop::counters() const {
    return {reads_.load(std::memory_order_relaxed), bytes_.load(std::memory_order_relaxed),
            busy_nanoseconds_.load(std::memory_order_relaxed), retries_.load(std::memory_order_relaxed)};
}

/// False once the reader is to end.
bool DriveReader::Loop::take_submitted() {
    taken_.clear();
    bool stopping;
    {
        const std::lock_guard lock(mutex_);
        taken_.swap(submitted_);
        sleeping_ = true;
        stopping = stopping_;
        if (stopping) taken_.insert(taken_.end(), spare_.begin(), spare_.end());
        if (stopping) spare_.clear();
    }
    for (DriveRead* read : taken_) queue_.add(*read);
    return !stopping;
}

/// Queues a spare read where the drive would have too little to do; false where it has enough, or there is none.
bool DriveReader::Loop::take_spare() {
    if (!queue_.has_time_to_spare()) return false;
    DriveRead* read;
    {
        const std::lock_guard lock(mutex_);
        if (spare_.empty()) return false;
        read = spare_.front();
        spare_.erase(spare_.begin());
    }
    queue_.add_spare(*read);
    return true;
}

/// Adds the time since the last call where a piece was in flight during it.
void DriveReader::Loop::count_time() {
    const auto now = Clock::now();
    if (busy_) {
        const auto passed = std::chrono::duration_cast<std::chrono::nanoseconds>(now - busy_since_).count();
        busy_nanoseconds_.fetch_add(static_cast<uint64_t>(passed), std::memory_order_relaxed);
    }
    busy_since_ = now;
    busy_ = queue_.in_flight() > 0;
}

/// False where no piece has ended.
bool DriveReader::Loop::collect(bool wait) {
    std::array<PieceEnd, kEndsAtOnce> ends;
    const size_t count = source_->backend->collect(ends, wait);
    ReadPiece again;
    for (size_t i = 0; i < count; i++) {
        if (queue_.end_piece(ends[i], again)) source_->backend->start(again);
    }
    pass_on_complete();
    count_time();
    bytes_.store(queue_.bytes(), std::memory_order_relaxed);
    retries_.store(queue_.retries(), std::memory_order_relaxed);
    return count > 0;
}

void DriveReader::Loop::tell_waiters() {
    events_.fetch_add(1, std::memory_order_release);
    events_.notify_all();
}

void DriveReader::Loop::pass_on_complete() {
    if (!queue_.has_complete()) return;
    {
        const std::lock_guard lock(arrived_mutex_);
        while (queue_.has_complete()) arrived_.push_back(&queue_.take_complete());
        arrived_count_.store(arrived_.size(), std::memory_order_release);
    }
    tell_waiters();
}

/// The oldest urgent one, else the oldest; null where there is none.
DriveRead* DriveReader::Loop::take_arrived() {
    if (!anything_arrived()) return nullptr;
    const std::lock_guard lock(arrived_mutex_);
    auto next = std::find_if(arrived_.begin(), arrived_.end(), [](const DriveRead* read) {
        return read->urgent.load(std::memory_order_relaxed);
    });
    if (next == arrived_.end()) next = arrived_.begin();
    if (next == arrived_.end()) return nullptr;
    DriveRead* const read = *next;
    arrived_.erase(next);
    arrived_count_.store(arrived_.size(), std::memory_order_release);
    return read;
}

/// Verifies a read that has arrived and gives it to its owner. False where there is none. Any thread.
bool DriveReader::Loop::finish_one() {
    DriveRead* const read = take_arrived();
    if (!read) return false;
    verify_read(*read, source_->paths, copied_);
    reads_.fetch_add(1, std::memory_order_relaxed);
    const auto state = read->error ? ReadState::failed : ReadState::done;
    // From the store on the read is its owner's; notify_all uses its address and not its content.
    auto& shared_state = read->state;
    shared_state.store(state, std::memory_order_release);
    shared_state.notify_all();
    landed_.fetch_add(1, std::memory_order_release);
    tell_waiters();
    return true;
}

void DriveReader::Loop::run() {
    ask_for_short_turns();
    for (;;) {
        const bool going_on = take_submitted();
        if (!going_on) queue_.stop();
        ReadPiece piece;
        do {
            while (queue_.next_piece(piece)) source_->backend->start(piece);
        } while (take_spare());
        pass_on_complete();  // what made no sense, or was stopped
        count_time();
        const bool idle = queue_.in_flight() == 0 && !anything_arrived();
        if (!going_on && idle) return;
        // Never wait on top of a read that has arrived. The drive comes first all the same: what takes the place of
        // pieces that have ended is passed on before a checksum is computed.
        const bool ended = collect(!anything_arrived());
        if (!ended) finish_one();
    }
}

DriveReader::DriveReader(std::unique_ptr<Loop> loop) : loop_(std::move(loop)) {}
DriveReader::~DriveReader() = default;

Result<std::unique_ptr<DriveReader>> DriveReader::launch(std::unique_ptr<Source> source,
                                                         const DriveReaderOptions& settings) {
    try {
        return std::unique_ptr<DriveReader>(
            new DriveReader(std::make_unique<Loop>(std::move(source), settings)));
    } catch (const std::system_error& error) {
        return fail(ErrorKind::capacity, "", fmt::format("cannot start the I/O thread: {}", error.what()));
    }
}

Result<std::unique_ptr<DriveReader>> DriveReader::start(std::vector<std::string> paths,
                                                        const DriveReaderOptions& options) {
    const auto settings = chosen(options, paths.size());
    if (!settings) return pass(settings);
    for (const FileCopy& copy : settings->copies) paths.push_back(copy.path);
    auto opened = open_read_files(paths, settings->direct);
    if (!opened) return pass(opened);
    auto source = std::make_unique<Source>();
    source->paths = std::move(paths);
    source->opened = std::move(*opened);
    const auto drives = static_cast<int>(drive_count(settings->copies));
    auto method =
        make_backend(settings->method, source->opened.files, drives * settings->depth, source->backend);
    if (!method) return pass(method);
    const std::string route = source->opened.direct
                                  ? "direct"
                                  : fmt::format("through the page cache ({})", source->opened.why_not_direct);
    source->description = fmt::format("{}, {}, depth {}, pieces of {}", *method, route, settings->depth,
                                      size_text(settings->piece_bytes));
    if (drives > 1) source->description += fmt::format(", {} directories", drives);
    return launch(std::move(source), *settings);
}

Result<std::unique_ptr<DriveReader>> DriveReader::start_with(std::unique_ptr<ReadBackend> backend,
                                                             std::vector<std::string> paths,
                                                             const DriveReaderOptions& options) {
    const auto settings = chosen(options, paths.size());
    if (!settings) return pass(settings);
    for (const FileCopy& copy : settings->copies) paths.push_back(copy.path);
    auto source = std::make_unique<Source>();
    source->paths = std::move(paths);
    source->backend = std::move(backend);
    source->description = "a backend of the caller's";
    return launch(std::move(source), *settings);
}

void DriveReader::submit(std::span<DriveRead* const> reads) {
    loop_->submit(reads);
}
void DriveReader::submit_spare(std::span<DriveRead* const> reads) {
    loop_->submit_spare(reads);
}
void DriveReader::withdraw(std::span<DriveRead* const> reads) {
    loop_->withdraw(reads);
}
void DriveReader::hurry(DriveRead& read) {
    loop_->hurry(read);
}
uint32_t DriveReader::landed() const {
    return loop_->landed();
}
void DriveReader::wait_for_landing(uint32_t seen) const {
    loop_->wait_for_landing(seen);
}
void DriveReader::wait(const DriveRead& read) const {
    loop_->wait(read);
}
DriveReaderCounters DriveReader::counters() const {
    return loop_->counters();
}
bool DriveReader::direct() const {
    return loop_->source().opened.direct;
}
std::string DriveReader::description() const {
    return loop_->source().description;
}

}  // namespace waste::container
