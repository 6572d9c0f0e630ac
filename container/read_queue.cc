#include "container/read_queue.h"

#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <optional>
#include <utility>

#include "container/checksum.h"
#include "container/manifest.h"
#include "container/system.h"

namespace waste::container {
namespace {

// Interruptions pass; one that never does must not keep a thread busy for ever.
constexpr int kMostInterruptions = 1000;

/// What is wrong with a request, as it stands.
std::optional<Error> wrong_request(const DriveRead& read, std::span<const std::string> paths) {
    if (read.file >= paths.size()) {
        return Error{ErrorKind::invalid, "",
                     fmt::format("read of file {}, but there are {} files", read.file, paths.size())};
    }
    constexpr auto kMost = static_cast<uint64_t>(std::numeric_limits<int64_t>::max());
    const bool aligned = read.offset % kAlignment == 0 && read.length % kAlignment == 0 &&
                         reinterpret_cast<uintptr_t>(read.to) % kAlignment == 0;
    if (aligned && read.offset <= kMost && read.length <= kMost - read.offset) return std::nullopt;
    return Error{
        ErrorKind::invalid, paths[read.file],
        fmt::format("read of {} bytes at offset {}: offset, length and memory must be multiples of {} "
                    "and within a file",
                    read.length, read.offset, kAlignment)};
}

}  // namespace

uint32_t drive_count(const std::vector<FileCopy>& copies) {
    uint32_t most = 0;
    for (const FileCopy& copy : copies) most = std::max(most, copy.drive);
    return most + 1;
}

ReadQueue::ReadQueue(const std::vector<std::string>& paths, const std::vector<FileCopy>& copies, int depth,
                     uint64_t piece_bytes)
    : paths_(paths), piece_bytes_(piece_bytes), depth_(depth), places_(paths.size() - copies.size()) {
    for (uint32_t file = 0; file < places_.size(); file++) places_[file].push_back({file, 0});
    for (size_t i = 0; i < copies.size(); i++) {
        places_[copies[i].file].push_back({static_cast<uint32_t>(places_.size() + i), copies[i].drive});
    }
    const uint32_t drives = drive_count(copies);
    in_flight_.assign(drives, 0);
    spare_depth_ = kSpareReadDepth * static_cast<int>(drives);
    pieces_.resize(drives * static_cast<size_t>(depth));
    for (uint32_t id = 0; id < pieces_.size(); id++) free_pieces_.push_back(id);
}

const ReadQueue::Place& ReadQueue::least_busy(uint32_t file) const {
    return *std::min_element(places_[file].begin(), places_[file].end(), [&](const Place& a, const Place& b) {
        return in_flight_[a.drive] < in_flight_[b.drive];
    });
}

/// The next copy of the file, round and round.
const ReadQueue::Place& ReadQueue::after(const Place& place, uint32_t file) const {
    const std::vector<Place>& all = places_[file];
    const auto here =
        std::find_if(all.begin(), all.end(), [&](const Place& one) { return one.file == place.file; });
    return here + 1 == all.end() ? all.front() : *(here + 1);
}

void ReadQueue::add(DriveRead& read, bool spare) {
    uint32_t index = static_cast<uint32_t>(active_.size());
    if (free_active_.empty()) {
        active_.emplace_back();
    } else {
        index = free_active_.back();
        free_active_.pop_back();
    }
    active_[index] = {&read, 0, 0, spare};
    read.error = wrong_request(read, std::span(paths_).first(places_.size()));
    const bool nothing_to_read = read.error || read.length == 0;
    (nothing_to_read ? complete_ : waiting_).push_back(index);
}

void ReadQueue::stop() {
    while (!waiting_.empty()) {
        const uint32_t index = waiting_.front();
        fail_read(index, Error{ErrorKind::interrupted, path_of(*active_[index].read),
                               "was not read: the reader ended first"});
    }
}

uint32_t ReadQueue::most_wanted() const {
    for (const uint32_t index : waiting_) {
        if (active_[index].read->urgent.load(std::memory_order_relaxed)) return index;
    }
    const auto asked_for =
        std::find_if(waiting_.begin(), waiting_.end(), [&](uint32_t index) { return !active_[index].spare; });
    return asked_for != waiting_.end() ? *asked_for : waiting_.front();
}

bool ReadQueue::next_piece(ReadPiece& piece) {
    if (waiting_.empty() || free_pieces_.empty()) return false;
    const uint32_t index = most_wanted();
    Active& active = active_[index];
    const DriveRead& read = *active.read;
    if (active.spare && in_flight() >= spare_depth_ && !read.urgent.load(std::memory_order_relaxed))
        return false;
    const Place& from = least_busy(read.file);
    if (in_flight_[from.drive] >= depth_) return false;
    const uint32_t id = free_pieces_.back();
    free_pieces_.pop_back();
    const uint64_t length = std::min(piece_bytes_, read.length - active.asked);
    piece = {id, from.file, read.offset + active.asked, length, read.to + active.asked};
    pieces_[id] = {piece, index, from, 0, false};
    in_flight_[from.drive]++;
    active.asked += length;
    active.in_flight++;
    if (active.asked == read.length) std::erase(waiting_, index);
    return true;
}

/// Whether a piece that did not get on shall be asked for once more, of another drive that has it.
bool ReadQueue::retry(Piece& piece, const PieceEnd& end) {
    const bool interrupted = end.result == -EINTR || end.result == -EAGAIN;
    // A drive may recover from an error; part of a block can be the end of the file, or of what was at hand.
    const bool may_pass = end.result == -EIO || end.result > 0;
    if (interrupted && piece.interruptions < kMostInterruptions) {
        piece.interruptions++;
    } else if (may_pass && !piece.retried) {
        piece.retried = true;
        in_flight_[piece.from.drive]--;
        piece.from = after(piece.from, active_[piece.active].read->file);
        piece.rest.file = piece.from.file;
        in_flight_[piece.from.drive]++;
    } else {
        return false;
    }
    retries_++;
    return true;
}

Error ReadQueue::failure_of(const Piece& piece, int64_t result) const {
    const ReadPiece& rest = piece.rest;
    const std::string& path = paths_[rest.file];
    if (result < 0) {
        return system_failure(static_cast<int>(-result), path, fmt::format("read at offset {}", rest.offset))
            .value();
    }
    const uint64_t size = rest.offset + static_cast<uint64_t>(result);
    const DriveRead& read = *active_[piece.active].read;
    return {ErrorKind::corrupt, path,
            fmt::format("truncated: it ends at byte {}, {} bytes are missing", size,
                        read.offset + read.length - size)};
}

/// Asks for no more of a read; it is complete once its pieces in flight have ended.
void ReadQueue::fail_read(uint32_t index, Error error) {
    Active& active = active_[index];
    active.read->error = std::move(error);
    std::erase(waiting_, index);
    active.asked = active.read->length;
    if (active.in_flight == 0) complete_.push_back(index);
}

bool ReadQueue::end_piece(const PieceEnd& end, ReadPiece& again) {
    Piece& piece = pieces_[end.id];
    ReadPiece& rest = piece.rest;
    Active& active = active_[piece.active];
    const uint64_t got = end.result > 0 ? std::min(static_cast<uint64_t>(end.result), rest.length) : 0;
    // Direct reads go on at a block's beginning only.
    const uint64_t whole = got / kAlignment * kAlignment;
    bytes_ += whole;
    rest.offset += whole;
    rest.to += whole;
    rest.length -= whole;
    const bool wanted = !active.read->error;
    if (rest.length > 0 && wanted && (whole > 0 || retry(piece, end))) {
        again = rest;
        return true;
    }
    active.in_flight--;
    in_flight_[piece.from.drive]--;
    free_pieces_.push_back(end.id);
    if (rest.length > 0 && wanted) {
        fail_read(piece.active, failure_of(piece, end.result));
    } else if (active.in_flight == 0 && active.asked == active.read->length) {
        complete_.push_back(piece.active);
    }
    return false;
}

DriveRead& ReadQueue::take_complete() {
    const uint32_t index = complete_.front();
    complete_.erase(complete_.begin());
    free_active_.push_back(index);
    return *active_[index].read;
}

void verify_read(DriveRead& read, const std::vector<std::string>& paths, bool copied) {
    if (read.error || !read.verify) return;
    if (xxh3_64(std::span<const std::byte>(read.to, read.length)) == read.hash) return;
    read.error = Error{ErrorKind::corrupt, paths[read.file],
                       fmt::format("bytes {} to {}{} do not match their checksum", read.offset,
                                   read.offset + read.length, copied ? ", there or in a copy," : "")};
}

}  // namespace waste::container
