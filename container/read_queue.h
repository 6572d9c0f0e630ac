// Which piece of which read comes next, and what becomes of a read as its pieces end. No thread and no system
// call: the I/O thread of DriveReader is the only caller.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/drive_reader.h"
#include "container/read_backend.h"

namespace waste::container {

/// How many drives are read from, where files have these copies.
uint32_t drive_count(const std::vector<FileCopy>& copies);

class ReadQueue {
  public:
    /// `paths`, which outlive the queue, name files in errors: what reads refer to, and behind them the copies' in their
    /// order. Pieces refer to any of them. At most `depth` pieces are in flight on a drive.
    ReadQueue(const std::vector<std::string>& paths, const std::vector<FileCopy>& copies, int depth,
              uint64_t piece_bytes);

    /// Queues a read. One that makes no sense is complete at once, as failed.
    void add(DriveRead& read) { add(read, false); }
    /// As add(), behind all that is not spare, and only where fewer than kSpareReadDepth pieces a drive are in flight.
    void add_spare(DriveRead& read) { add(read, true); }
    /// Whether nothing waits and the drive would run dry.
    bool has_time_to_spare() const { return waiting_.empty() && in_flight() < spare_depth_; }
    /// No piece of what is queued comes any more: what is not complete by itself fails as `interrupted`.
    void stop();

    /// The next piece to start: of the oldest urgent read, else of the oldest, spare ones last. False where nothing
    /// waits or the depth is reached.
    bool next_piece(ReadPiece& piece);
    /// A piece has ended. True where it is to be started again, as `again`: the rest of a short one, or all
    /// of one whose failure may pass.
    bool end_piece(const PieceEnd& end, ReadPiece& again);

    bool has_complete() const { return !complete_.empty(); }
    /// Takes out the oldest complete read; `error` is set where it has failed, `state` is left alone. Its
    /// checksum is still to be compared.
    DriveRead& take_complete();

    int in_flight() const { return static_cast<int>(pieces_.size() - free_pieces_.size()); }
    uint64_t bytes() const { return bytes_; }
    uint64_t retries() const { return retries_; }

  private:
    /// Where a file's content is.
    struct Place {
        uint32_t file = 0;
        uint32_t drive = 0;
    };
    struct Active {
        DriveRead* read = nullptr;
        uint64_t asked = 0;  ///< bytes of it that have been given out in pieces
        int in_flight = 0;   ///< pieces
        bool spare = false;
    };
    struct Piece {
        ReadPiece rest;  ///< what of it is still to come
        uint32_t active = 0;
        Place from;
        int interruptions = 0;
        bool retried = false;
    };

    const std::string& path_of(const DriveRead& read) const { return paths_[read.file]; }
    const Place& least_busy(uint32_t file) const;
    const Place& after(const Place& place, uint32_t file) const;
    void add(DriveRead& read, bool spare);
    uint32_t most_wanted() const;
    bool retry(Piece& piece, const PieceEnd& end);
    Error failure_of(const Piece& piece, int64_t result) const;
    void fail_read(uint32_t index, Error error);

    const std::vector<std::string>& paths_;
    const uint64_t piece_bytes_;
    const int depth_;
    std::vector<std::vector<Place>> places_;  ///< of each file that reads refer to
    std::vector<int> in_flight_;              ///< pieces, of each drive
    int spare_depth_ = 0;                     ///< of all drives together
    std::vector<Active> active_;
    std::vector<uint32_t> free_active_;
    std::vector<uint32_t> waiting_;   ///< with bytes not asked for, in order of submission
    std::vector<uint32_t> complete_;  ///< in order of completion
    std::vector<Piece> pieces_;       ///< by id
    std::vector<uint32_t> free_pieces_;
    uint64_t bytes_ = 0;
    uint64_t retries_ = 0;
};

/// Compares the bytes of a complete read with its checksum where it is to be verified, and sets `error` where they
/// differ. `copied`: they may be a copy's. Any thread.
void verify_read(DriveRead& read, const std::vector<std::string>& paths, bool copied);

}  // namespace waste::container
