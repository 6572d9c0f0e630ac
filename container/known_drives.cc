#include "container/known_drives.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <nlohmann/json.hpp>
#include <string_view>

#include "container/drive_reader.h"
#include "container/file.h"
#include "container/manifest.h"
#include "container/system.h"

namespace waste::container {
namespace {

using Json = nlohmann::ordered_json;

constexpr uint64_t kMostBytes = 1 << 20;
constexpr int kVersion = 1;
constexpr size_t kMostDrives = 100;

/// The list of drives; an empty one where the file is missing or not ours.
Json read_drives(const std::string& path) {
    const auto text = read_text_file(path, kMostBytes);
    if (!text) return Json::array();
    const Json all = Json::parse(*text, nullptr, false);
    if (!all.is_object() || !all.contains("version") || all["version"] != kVersion) return Json::array();
    if (!all.contains("drives") || !all["drives"].is_array()) return Json::array();
    return all["drives"];
}

bool has_text(const Json& object, const char* key, std::string_view text) {
    return object.is_object() && object.contains(key) && object[key].is_string() &&
           object[key].get_ref<const std::string&>() == text;
}

bool is_of(const Json& drive, const DriveFacts& facts) {
    return has_text(drive, "device", facts.device_text()) &&
           has_text(drive, "file_system", facts.file_system);
}

/// 0 where there is none.
uint64_t number_of(const Json& drive, const char* key) {
    return drive.contains(key) && drive[key].is_number_unsigned() ? drive[key].get<uint64_t>() : 0;
}

}  // namespace

std::string known_drives_path() {
    // The desktop's rule: a relative path there counts as none.
    const char* cache = std::getenv("XDG_CACHE_HOME");
    if (cache && *cache == '/') return join_path(cache, "waste/drives.json");
    const char* home = std::getenv("HOME");
    return home && *home ? join_path(home, ".cache/waste/drives.json") : std::string();
}

Result<void> remember_drive_rate(const std::string& known_drives, const DriveRate& rate) {
    if (!rate.direct || known_drives.empty()) return {};
    Json drives = Json::array();
    const DriveRateRow& best = rate.best();
    drives.push_back({{"device", rate.facts.device_text()},
                      {"file_system", rate.facts.file_system},
                      {"name", rate.facts.name},
                      {"bytes_per_second", best.rate()},
                      {"record_bytes", best.record_bytes},
                      {"depth", best.depth}});
    for (const Json& drive : read_drives(known_drives)) {
        if (drive.is_object() && !is_of(drive, rate.facts) && drives.size() < kMostDrives)
            drives.push_back(drive);
    }
    const Json all = {{"version", kVersion}, {"drives", drives}};
    const std::string directory = parent_directory(known_drives);
    for (const std::string& made : {parent_directory(directory), directory}) {
        const auto there = make_directory(made);
        if (!there) return there;
    }
    return write_file(known_drives, all.dump(1, ' ', false, Json::error_handler_t::replace) + "\n");
}

std::optional<KnownDrive> known_drive(const std::string& known_drives, const DriveFacts& facts) {
    for (const Json& drive : read_drives(known_drives)) {
        if (!is_of(drive, facts) || !drive.contains("bytes_per_second")) continue;
        const Json& value = drive["bytes_per_second"];
        if (!value.is_number()) continue;
        const double rate = value.get<double>();
        if (!std::isfinite(rate) || rate <= 0) continue;
        const auto depth = number_of(drive, "depth"), record = number_of(drive, "record_bytes");
        KnownDrive known{rate, 0, 0};
        if (depth <= kMostReadDepth && record % kAlignment == 0) {
            // A deeper queue may give more in sum, but all that is in it ends together: a run waits for the first.
            known.depth = static_cast<int>(std::min<uint64_t>(depth, kDefaultReadDepth));
            // Longer records were read in pieces of the default size.
            known.piece_bytes = std::min(record, kDefaultPieceBytes);
        }
        return known;
    }
    return std::nullopt;
}

std::optional<KnownDrive> known_drive(const std::string& path) {
    const auto facts = read_drive_facts(path, "");
    return facts ? known_drive(known_drives_path(), *facts) : std::nullopt;
}

}  // namespace waste::container
