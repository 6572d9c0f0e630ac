#include "engine/convert/destination.h"

#include <fmt/format.h>

#include <algorithm>

#include "container/checksum.h"
#include "container/file.h"
#include "container/reader.h"
#include "engine/convert/encode.h"

namespace waste::engine {
namespace {

using container::kJournalName;
using container::Manifest;

// Room beyond the container's own bytes: manifest, carried files, file system overhead.
constexpr uint64_t kSpareBytes = 16 << 20;

bool same_choices(const ConvertJob& job, const Manifest& manifest) {
    const auto same_file = [](const container::CarriedFile& a, const CarriedContent& b) {
        return a.name == b.name && a.hash == container::xxh3_64(b.content);
    };
    return manifest.config == job.source.config_text() &&
           std::equal(manifest.files.begin(), manifest.files.end(), job.carried.begin(), job.carried.end(),
                      same_file) &&
           manifest.trunk_recipe == job.trunk_recipe && manifest.expert_recipe == job.expert_recipe &&
           same_layout(job.layout, manifest);
}

/// Needs the same layout.
Result<bool> same_vectors(const ConvertJob& job, const Manifest& manifest, ThreadPool& pool) {
    const Source& source = job.source;
    TrunkEncoder encoder(source, pool);
    for (size_t i = 0; i < source.trunk().size(); i++) {
        if (source.trunk()[i].role != Role::vector) continue;
        container::Hasher hasher;
        const auto ok = encoder.encode(i, job.layout.tensors[i],
                                       [&](uint64_t, std::span<const std::byte> bytes) -> Result<void> {
                                           hasher.update(bytes);
                                           return {};
                                       });
        if (!ok) return pass(ok);
        source.checkpoint().release_pages(source.trunk_source(i));
        if (hasher.digest_64() != manifest.tensors[i].hash) return false;
    }
    return true;
}

}  // namespace

std::string Destination::path(std::string_view name) const {
    return container::join_path(directory_, name);
}

bool Destination::has_journal() const {
    return container::is_file(path(kJournalName));
}

uint64_t Destination::free_bytes() const {
    return container::free_space(directory_).value_or(0);
}

Result<std::optional<std::string>> Destination::finished(const ConvertJob& job, ThreadPool& pool) const {
    if (!container::is_file(path(container::kManifestName))) return std::nullopt;
    const auto existing = container::Container::open(directory_);
    if (!existing) return pass(existing);
    if (same_choices(job, existing->manifest())) {
        const auto same = same_vectors(job, existing->manifest(), pool);
        if (!same) return pass(same);
        if (*same) return existing->manifest().fingerprint;
    }
    return fail(
        ErrorKind::invalid, directory_,
        "is a finished container of another model or recipe; remove it or choose another destination");
}

Result<void> Destination::check_usable() const {
    if (!container::is_directory(directory_)) return {};
    if (has_journal()) return {};
    const auto names = container::list_directory(directory_);
    if (!names) return pass(names);
    // A run killed at its very start leaves the journal it was about to name.
    const std::string unborn = std::string(kJournalName) + std::string(container::kPartialSuffix);
    if (std::all_of(names->begin(), names->end(), [&](const std::string& name) { return name == unborn; })) {
        return {};
    }
    return fail(ErrorKind::invalid, directory_,
                "is not empty and holds no unfinished conversion; choose another destination");
}

/// Bytes that `name` holds already, finished or not. Hopeful for an unfinished trunk, which has its full
/// length before its bytes: a run that goes on must not be refused for space it has taken itself.
uint64_t Destination::present_bytes(std::string_view name) const {
    const std::string file = path(name);
    return container::is_file(file)
               ? container::file_size(file).value_or(0)
               : container::file_size(file + std::string(container::kPartialSuffix)).value_or(0);
}

Result<void> Destination::check_space(const ContainerLayout& layout) const {
    uint64_t present = present_bytes(container::kTrunkName);
    for (const container::BankEntry& bank : layout.banks) present += present_bytes(bank.file);
    const uint64_t total = layout.total_bytes();
    const uint64_t needed = total - std::min(total, present) + kSpareBytes;
    const uint64_t free = free_bytes();
    if (free >= needed) return {};
    return fail(
        ErrorKind::capacity, directory_,
        fmt::format("the conversion needs {:.2f} GiB more and the file system has {:.2f} GiB free; free some "
                    "space or choose another destination",
                    static_cast<double>(needed) / (1 << 30), static_cast<double>(free) / (1 << 30)));
}

Result<void> Destination::remove_journal() const {
    return has_journal() ? container::remove_file(path(kJournalName)) : Result<void>{};
}

}  // namespace waste::engine
