#include "container/read_threads.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <system_error>
#include <thread>
#include <utility>

#include "container/system.h"

namespace waste::container {
namespace {

/// A queue of fixed room: the asker never has more than `depth` pieces in flight, so neither list grows.
class ThreadBackend final : public ReadBackend {
  public:
    explicit ThreadBackend(const std::vector<ReadFile>& files) : files_(files) {}
    ThreadBackend(const ThreadBackend&) = delete;
    ThreadBackend& operator=(const ThreadBackend&) = delete;
    ~ThreadBackend() override;

    Result<void> open(int depth);
    void start(const ReadPiece& piece) override;
    size_t collect(std::span<PieceEnd> ends, bool wait) override;
    void wake() override;

  private:
    void read_pieces();
    int64_t read_piece(const ReadPiece& piece) const;

    const std::vector<ReadFile>& files_;
    std::mutex mutex_;                ///< guards what follows, but for the threads
    std::condition_variable work_;    ///< a piece waits, or all is over
    std::condition_variable ended_;   ///< a piece has ended, or wake()
    std::vector<ReadPiece> waiting_;  ///< a ring: next_ is the oldest of count_
    size_t next_ = 0;
    size_t count_ = 0;
    std::vector<PieceEnd> ends_;
    bool woken_ = false;
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

Result<void> ThreadBackend::open(int depth) {
    waiting_.resize(static_cast<size_t>(depth));
    ends_.reserve(static_cast<size_t>(depth));
    threads_.reserve(static_cast<size_t>(depth));
    try {
        for (int i = 0; i < depth; i++) threads_.emplace_back([this] { read_pieces(); });
    } catch (const std::system_error& error) {
        // Fewer threads read more slowly, and as well.
        if (threads_.empty()) {
            return fail(ErrorKind::capacity, "", std::string("cannot start a thread: ") + error.what());
        }
    }
    return {};
}

ThreadBackend::~ThreadBackend() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    work_.notify_all();
    for (std::thread& thread : threads_) thread.join();
}

void ThreadBackend::start(const ReadPiece& piece) {
    {
        const std::lock_guard lock(mutex_);
        waiting_[(next_ + count_) % waiting_.size()] = piece;
        count_++;
    }
    work_.notify_one();
}

size_t ThreadBackend::collect(std::span<PieceEnd> ends, bool wait) {
    std::unique_lock lock(mutex_);
    if (wait) ended_.wait(lock, [this] { return !ends_.empty() || woken_; });
    woken_ = false;
    size_t count = 0;
    while (count < ends.size() && !ends_.empty()) {
        ends[count++] = ends_.back();
        ends_.pop_back();
    }
    return count;
}

void ThreadBackend::wake() {
    {
        const std::lock_guard lock(mutex_);
        woken_ = true;
    }
    ended_.notify_one();
}

int64_t ThreadBackend::read_piece(const ReadPiece& piece) const {
    const ReadFile& file = files_[piece.file];
    const ssize_t got =
        pread(file.descriptor.number(), piece.to, piece.length, static_cast<off_t>(piece.offset));
    const int64_t result = got < 0 ? -errno : got;
    drop_pages(file, piece.offset, piece.length);
    return result;
}

void ThreadBackend::read_pieces() {
    ask_for_short_turns();
    std::unique_lock lock(mutex_);
    for (;;) {
        work_.wait(lock, [this] { return count_ > 0 || stopping_; });
        if (count_ == 0) return;
        const ReadPiece piece = waiting_[next_];
        next_ = (next_ + 1) % waiting_.size();
        count_--;
        lock.unlock();
        const int64_t result = read_piece(piece);
        lock.lock();
        ends_.push_back({piece.id, result});
        ended_.notify_one();
    }
}

}  // namespace

Result<std::unique_ptr<ReadBackend>> make_thread_backend(const std::vector<ReadFile>& files, int depth) {
    auto backend = std::make_unique<ThreadBackend>(files);
    const auto opened = backend->open(depth);
    if (!opened) return pass(opened);
    return backend;
}

}  // namespace waste::container
