// What a drive gives: records read at random places of a file of our own, or of a model's banks, by DriveReader, as the
// engine reads experts.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/drive_facts.h"
#include "container/drive_reader.h"
#include "container/result.h"

namespace waste::container {

struct DriveRateOptions {
    uint64_t file_bytes = uint64_t{1} << 30;                            ///< of the file that is written
    std::vector<uint64_t> record_bytes = {1 << 20, 4 << 20, 16 << 20};  ///< multiples of kAlignment
    std::vector<int> depths = {1, 2, 4, 8, 16};                         ///< as of DriveReaderOptions
    int runs = 3;               ///< of all sizes and depths, one after the other
    double seconds_each = 0.5;  ///< of a size and depth in a run
    ReadMethod method = ReadMethod::automatic;
};

/// One record size at one depth.
struct DriveRateRow {
    uint64_t record_bytes = 0;
    int depth = 0;
    std::vector<double> bytes_per_second;  ///< a value a run
    double median_seconds = 0;             ///< of a record, from submission to its end, over all runs
    double p99_seconds = 0;

    double rate() const;    ///< median of the runs, the slower one of two
    double spread() const;  ///< between the fastest and the slowest run, as a share of the median
};

struct DriveRate {
    DriveFacts facts;
    std::string description;  ///< of the reader, depth left out
    /// False: the page cache stood between, or memory is all there is, and the figures are not a drive's.
    bool direct = false;
    uint64_t file_bytes = 0;  ///< read from, all files together
    double write_bytes_per_second =
        0;                           ///< through the page cache and down to the drive; 0: nothing was written
    std::vector<DriveRateRow> rows;  ///< sizes in order, the depths of each in order

    /// The least depth, then the smallest size, of those within 3 % of the fastest. There must be a row.
    const DriveRateRow& best() const;
};

/// What is being done, and the share of all that is done, 0 to 1. False ends the work as `interrupted`.
using DriveProgress = std::function<bool(std::string_view what, double share)>;

/// Reads from files that are there, each at least as long as the longest record, as often as its length asks for. A drive,
/// or the host of a virtual one, answers from a cache of its own what was read or written a short time ago: only files
/// larger than that show what the drive does.
Result<DriveRate> measure_read_rate(const std::vector<std::string>& paths, const DriveRateOptions& options,
                                    const DriveProgress& progress);

/// Writes a file into `directory`, reads, and leaves nothing behind, however it ends: the file has no name
/// while it is used.
Result<DriveRate> measure_drive_rate(const std::string& directory, const DriveRateOptions& options,
                                     const DriveProgress& progress);

}  // namespace waste::container
