// What drives gave when they were measured, kept for planners: a small file in the user's cache directory. It
// is a cache: where it is damaged or of another version it counts for nothing, and the next measurement
// replaces it.
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

/// Bytes a second that the drive under `path` gave when it was last measured.
std::optional<double> known_drive_rate(const std::string& path);
/// The same with the file and the drive given.
std::optional<double> known_drive_rate(const std::string& known_drives, const DriveFacts& facts);

}  // namespace waste::container
