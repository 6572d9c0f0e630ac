#include "container/uring.h"

#include <fmt/format.h>
#include <liburing.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "container/manifest.h"

namespace waste::container {
namespace {

// Marks the end of the poll on the event that wakes the ring. A piece's id has 32 bits.
constexpr uint64_t kWakeTag = uint64_t{1} << 32;

tl::unexpected<Error> refused(int error_number, const char* action) {
    return fail(ErrorKind::unsupported, "",
                fmt::format("io_uring is not available here (cannot {}: {})", action,
                            std::generic_category().message(error_number)));
}

class UringBackend final : public ReadBackend {
  public:
    explicit UringBackend(const std::vector<ReadFile>& files) : files_(files) {}
    UringBackend(const UringBackend&) = delete;
    UringBackend& operator=(const UringBackend&) = delete;
    ~UringBackend() override {
        if (!has_ring_) return;
        // The kernel takes a ring apart later, when it finds time, and until then a file system in use cannot be
        // unmounted and a deleted file's room is not free.
        if (registered_) io_uring_unregister_files(&ring_);
        io_uring_queue_exit(&ring_);
    }

    Result<void> open(int depth);
    void start(const ReadPiece& piece) override;
    size_t collect(std::span<PieceEnd> ends, bool wait) override;
    void wake() override;

  private:
    struct Placed {
        uint32_t file;
        uint64_t offset;
        uint64_t length;
    };

    Result<void> try_read();
    void poll_for_wake();
    size_t take_ends(std::span<PieceEnd> ends, bool& woken);

    const std::vector<ReadFile>& files_;
    io_uring ring_{};
    bool has_ring_ = false;
    bool registered_ = false;
    Descriptor wake_event_;
    std::vector<Placed> placed_;  ///< by id: where a piece in flight is in its file
};

Result<void> UringBackend::open(int depth) {
    // Room for every piece and the poll, so that there always is a free entry.
    const int opened = io_uring_queue_init(static_cast<unsigned>(depth) + 1, &ring_, 0);
    if (opened < 0) return refused(-opened, "create a ring");
    has_ring_ = true;
    std::vector<int> numbers;
    for (const ReadFile& file : files_) numbers.push_back(file.descriptor.number());
    if (!numbers.empty()) {
        const int registered =
            io_uring_register_files(&ring_, numbers.data(), static_cast<unsigned>(numbers.size()));
        if (registered < 0) return refused(-registered, "register files");
        registered_ = true;
    }
    wake_event_ = Descriptor(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (wake_event_.number() < 0) return refused(errno, "create an event");
    placed_.resize(static_cast<size_t>(depth));
    const auto read = try_read();
    if (!read) return read;
    poll_for_wake();
    return {};
}

/// Kernels before 5.6 have rings that do not know this read.
Result<void> UringBackend::try_read() {
    if (files_.empty()) return {};
    alignas(kAlignment) std::array<std::byte, kAlignment> memory;
    start(ReadPiece{0, 0, 0, memory.size(), memory.data()});
    std::array<PieceEnd, 1> end;
    while (collect(end, true) == 0) {
    }
    // An error of the drive is not the ring's: the reads that follow will meet it, and say so.
    const int64_t result = end[0].result;
    if (result == -EINVAL || result == -EOPNOTSUPP || result == -EPERM || result == -EACCES) {
        return refused(static_cast<int>(-result), "read");
    }
    return {};
}

void UringBackend::poll_for_wake() {
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_poll_add(entry, wake_event_.number(), POLLIN);
    io_uring_sqe_set_data64(entry, kWakeTag);
}

void UringBackend::start(const ReadPiece& piece) {
    placed_[piece.id] = {piece.file, piece.offset, piece.length};
    io_uring_sqe* entry = io_uring_get_sqe(&ring_);
    io_uring_prep_read(entry, static_cast<int>(piece.file), piece.to, static_cast<unsigned>(piece.length),
                       piece.offset);
    io_uring_sqe_set_flags(entry, IOSQE_FIXED_FILE);
    io_uring_sqe_set_data64(entry, piece.id);
}

size_t UringBackend::take_ends(std::span<PieceEnd> ends, bool& woken) {
    size_t count = 0;
    io_uring_cqe* completion = nullptr;
    while (count < ends.size() && io_uring_peek_cqe(&ring_, &completion) == 0) {
        const uint64_t tag = io_uring_cqe_get_data64(completion);
        const int result = completion->res;
        io_uring_cqe_seen(&ring_, completion);
        if (tag == kWakeTag) {
            uint64_t value;
            // The event is readable; where it is not after all, the new poll waits for it.
            [[maybe_unused]] const auto got = read(wake_event_.number(), &value, sizeof value);
            poll_for_wake();
            woken = true;
            continue;
        }
        const Placed& placed = placed_[tag];
        drop_pages(files_[placed.file], placed.offset, placed.length);
        ends[count++] = {static_cast<uint32_t>(tag), result};
    }
    return count;
}

size_t UringBackend::collect(std::span<PieceEnd> ends, bool wait) {
    for (;;) {
        // A refusal (EINTR, EAGAIN, EBUSY) leaves entries where they are, for the next round.
        const int submitted = wait ? io_uring_submit_and_wait(&ring_, 1) : io_uring_submit(&ring_);
        bool woken = false;
        const size_t count = take_ends(ends, woken);
        if (count > 0 || woken || !wait) return count;
        if (submitted < 0) usleep(100);  // the kernel is short of something
    }
}

void UringBackend::wake() {
    const uint64_t one = 1;
    // It can only fail where the counter is full, and then the ring is awake.
    [[maybe_unused]] const auto written = write(wake_event_.number(), &one, sizeof one);
}

}  // namespace

Result<std::unique_ptr<ReadBackend>> make_uring_backend(const std::vector<ReadFile>& files, int depth) {
    auto backend = std::make_unique<UringBackend>(files);
    const auto opened = backend->open(depth);
    if (!opened) return pass(opened);
    return backend;
}

}  // namespace waste::container
