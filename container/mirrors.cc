#include "container/mirrors.h"

#include <fmt/format.h>

#include "container/file.h"

namespace waste::container {
namespace {

Result<void> check_fingerprint(const std::string& mirror, const Manifest& manifest) {
    const std::string path = join_path(mirror, kManifestName);
    if (!is_directory(mirror)) return fail(ErrorKind::not_found, mirror, "there is no such directory");
    if (!is_file(path)) {
        return fail(ErrorKind::not_found, mirror,
                    fmt::format("has no {}: copy the model's beside the copies of its files", kManifestName));
    }
    const auto text = read_text_file(path, kMaxManifestBytes);
    if (!text) return pass(text);
    const auto found = parse_manifest(*text, path);
    if (!found) return pass(found);
    if (found->fingerprint == manifest.fingerprint) return {};
    return fail(ErrorKind::invalid, mirror,
                fmt::format("has files of another model: its fingerprint is {}, not {}", found->fingerprint,
                            manifest.fingerprint));
}

}  // namespace

std::vector<std::string> read_paths(const std::string& directory, const Manifest& manifest) {
    std::vector<std::string> paths;
    paths.reserve(manifest.banks.size() + 1);
    for (const BankEntry& bank : manifest.banks) paths.push_back(join_path(directory, bank.file));
    paths.push_back(join_path(directory, kTrunkName));
    return paths;
}

Result<std::vector<FileCopy>> find_copies(const Manifest& manifest, const std::vector<std::string>& mirrors) {
    std::vector<FileCopy> copies;
    uint32_t drive = 0;
    for (const std::string& mirror : mirrors) {
        drive++;
        if (const auto same = check_fingerprint(mirror, manifest); !same) return pass(same);
        const size_t before = copies.size();
        const std::vector<std::string> paths = read_paths(mirror, manifest);
        for (uint32_t file = 0; file < paths.size(); file++) {
            if (!is_file(paths[file])) continue;
            const auto bytes = file_size(paths[file]);
            if (!bytes) return pass(bytes);
            const bool is_bank = file < manifest.banks.size();
            const uint64_t expected = is_bank ? manifest.banks[file].bytes : manifest.trunk_bytes;
            if (*bytes != expected) {
                return fail(
                    ErrorKind::corrupt, paths[file],
                    fmt::format("has {} bytes where the model's has {}: copy it again", *bytes, expected));
            }
            copies.push_back({file, drive, paths[file]});
        }
        if (copies.size() == before) {
            return fail(ErrorKind::not_found, mirror, "has no copy of one of the model's banks or its trunk");
        }
    }
    return copies;
}

}  // namespace waste::container
