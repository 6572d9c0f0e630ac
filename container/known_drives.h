// What drives gave when they were measured, kept for planners and for runs: a small file in the user's cache
// directory. It is a cache: where it is damaged or of another version it counts for nothing, and the next
// measurement replaces it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "container/drive_facts.h"
#include "container/drive_rate.h"
#include "container/result.h"

namespace waste::container {

/// $XDG_CACHE_HOME/waste/drives.json, or the same in ~/.cache; empty where there is neither.
std::string known_drives_path();

/// Keeps the best row of a measurement, in place of an older one of the same device and file system. One that
/// went through the page cache is not kept.
Result<void> remember_drive_rate(const std::string& known_drives, const DriveRate& rate);

/// What a measurement found: the rate, and with how much in flight.
struct KnownDrive {
    double bytes_per_second = 0;
    int depth = 0;             ///< as of DriveReaderOptions; 0: not known
    uint64_t piece_bytes = 0;  ///< likewise
};

/// Of the drive under `path`, when it was last measured.
std::optional<KnownDrive> known_drive(const std::string& path);
/// The same with the file and the drive given.
std::optional<KnownDrive> known_drive(const std::string& known_drives, const DriveFacts& facts);

}  // namespace waste::container
