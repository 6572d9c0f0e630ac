// What stands between DriveReader and the system: pieces go in, their ends come out. Tests put a faulty one
// here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace waste::container {

/// A range asked for in one go. Its memory stays until the piece has ended.
struct ReadPiece {
    uint32_t id = 0;  ///< the asker's, below the depth and its own while in flight; given back at the end
    uint32_t file = 0;
    uint64_t offset = 0;
    uint64_t length = 0;
    std::byte* to = nullptr;
};

struct PieceEnd {
    uint32_t id = 0;
    int64_t result = 0;  ///< bytes read, 0 at the end of the file; below zero an errno, negated
};

/// Called by one thread, the I/O thread, but for wake().
class ReadBackend {
  public:
    virtual ~ReadBackend() = default;

    /// Takes a piece. The asker keeps the number in flight within the depth that the backend was made for.
    virtual void start(const ReadPiece& piece) = 0;
    /// Passes on what was started and fills `ends` with what has ended; the number of those. With `wait` it
    /// returns only once a piece has ended or wake() was called since the last collect.
    virtual size_t collect(std::span<PieceEnd> ends, bool wait) = 0;
    /// Ends a collect that waits, or the next one that would. Any thread.
    virtual void wake() = 0;
};

}  // namespace waste::container
