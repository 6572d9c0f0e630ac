// Reads of ranges of files past the page cache, many at once, without a thread of the caller's waiting inside
// the system.
//
// One I/O thread owns everything below submit(): it cuts reads into pieces, keeps a few pieces in flight,
// urgent reads first, otherwise in order of submission and spare ones last, continues short pieces, and retries
// what may pass (a piece that fails with EIO once). A read that is complete is compared with its checksum by that thread or by
// one that has nothing to do but wait, so that records which arrive together are checked together. The bytes
// are the same whichever way they came.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "container/result.h"

namespace waste::container {

class ReadBackend;

enum class ReadState : uint32_t { idle, pending, done, failed };

/// One range wanted. It and its memory stay where they are until the read has ended; then both are the
/// caller's again.
struct DriveRead {
    uint32_t file = 0;        ///< index into the paths given to start(), copies not counted
    uint64_t offset = 0;      ///< multiple of kAlignment
    uint64_t length = 0;      ///< multiple of kAlignment; all of it must be in the file
    std::byte* to = nullptr;  ///< aligned to kAlignment
    uint64_t hash = 0;        ///< XXH3-64 that the bytes must have, where verify is set
    bool verify = true;
    std::atomic<ReadState> state{
        ReadState::idle};             ///< done and failed are stored with release, then notified to all
    std::atomic<bool> urgent{false};  ///< goes before those that are not; while pending, set it with hurry()
    std::optional<Error> error;       ///< where failed; valid after an acquire load of state
};

enum class ReadMethod {
    automatic,  ///< io_uring, or threads where the kernel does not grant it
    io_uring,
    threads,  ///< each in a system call of its own
};

inline constexpr int kDefaultReadDepth = 8;
inline constexpr int kMostReadDepth = 1024;
inline constexpr uint32_t kMostOtherDrives = 15;  ///< with copies
/// Fewest pieces in flight with which a drive comes near its rate.
inline constexpr int kSpareReadDepth = 3;
inline constexpr uint64_t kDefaultPieceBytes = uint64_t{1} << 20;

/// A file with the same content as one of those to read from, on a drive of its own.
struct FileCopy {
    uint32_t file = 0;   ///< whose copy: index into the paths
    uint32_t drive = 1;  ///< the paths lie on drive 0
    std::string path;
};

struct DriveReaderOptions {
    ReadMethod method = ReadMethod::automatic;
    /// Past the page cache, file by file where the file system can. Where it cannot, pages are given back
    /// once read, so that the cache does not fill. Without `direct` the cache is used as it comes.
    bool direct = true;
    int depth = 0;             ///< pieces in flight at most, on each drive; 0: kDefaultReadDepth
    uint64_t piece_bytes = 0;  ///< multiple of kAlignment; 0: kDefaultPieceBytes
    /// A piece comes from the copy whose drive has the least to do; one that fails is asked of another.
    std::vector<FileCopy> copies = {};
};

struct DriveReaderCounters {
    uint64_t reads = 0;             ///< ended, failed ones included
    uint64_t bytes = 0;             ///< arrived in memory
    uint64_t busy_nanoseconds = 0;  ///< with at least one piece in flight
    uint64_t retries = 0;           ///< pieces asked for again, short ones not counted
};

/// Thread-safe, but for its end: no call may be under way or come after.
class DriveReader {
  public:
    /// Opens the files, which must be regular ones.
    static Result<std::unique_ptr<DriveReader>> start(std::vector<std::string> paths,
                                                      const DriveReaderOptions& options);
    /// As start(), through a backend of the caller's. The files are named in errors, and never opened.
    static Result<std::unique_ptr<DriveReader>> start_with(std::unique_ptr<ReadBackend> backend,
                                                           std::vector<std::string> paths,
                                                           const DriveReaderOptions& options);
    /// Waits for what is in flight; what is queued fails as `interrupted`.
    ~DriveReader();
    DriveReader(const DriveReader&) = delete;
    DriveReader& operator=(const DriveReader&) = delete;

    /// Sets each state to `pending` and queues the reads. Never waits for a read; allocates only while the
    /// queue is longer than it has ever been.
    void submit(std::span<DriveRead* const> reads);
    /// As submit(), for reads that may turn out not to be wanted: they are begun one by one, in order, where nothing
    /// else waits and fewer than kSpareReadDepth pieces are in flight, so that what is submitted next waits little for
    /// them, and until then can be withdrawn.
    void submit_spare(std::span<DriveRead* const> reads);
    /// Takes back spare reads that have not begun: their state is `idle` on return, that of the others as it was.
    void withdraw(std::span<DriveRead* const> reads);
    /// Makes a pending read urgent.
    void hurry(DriveRead& read);

    /// Reads that have ended so far, modulo 2^32. What has ended by then is seen in the reads' states.
    uint32_t landed() const;
    /// Returns once landed() differs from `seen`: compares checksums of what has arrived meanwhile, spins for some
    /// microseconds, then sleeps.
    void wait_for_landing(uint32_t seen) const;
    /// Returns once the read has ended: compares checksums while there are any, then sleeps.
    void wait(const DriveRead& read) const;

    DriveReaderCounters counters() const;
    /// Whether every file is read past the page cache.
    bool direct() const;
    /// "io_uring, direct, depth 8, pieces of 1 MiB", "threads, through the page cache (FILE: …), …".
    std::string description() const;

  private:
    struct Source;
    class Loop;
    static Result<std::unique_ptr<DriveReader>> launch(std::unique_ptr<Source> source,
                                                       const DriveReaderOptions& settings);
    explicit DriveReader(std::unique_ptr<Loop> loop);
    std::unique_ptr<Loop> loop_;
};

}  // namespace waste::container
