#include "engine/synth/target.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "container/reader.h"
#include "container/text.h"

namespace waste::engine {
namespace {

using container::kPartialSuffix;

// Room beyond the container's own bytes: manifest, file system overhead.
constexpr uint64_t kSpareBytes = 16 << 20;

std::string_view without_slashes(std::string_view path) {
    const size_t last = path.find_last_not_of('/');
    return last == path.npos ? path : path.substr(0, last + 1);
}

/// True for the files that a synthetic container consists of, finished or not.
bool is_own_file(std::string_view name) {
    if (name.ends_with(kPartialSuffix)) name.remove_suffix(kPartialSuffix.size());
    return name == container::kManifestName || name == container::kTrunkName ||
           (name.starts_with("experts-") && name.ends_with(".bin"));
}

/// Removes the files of a synthetic container, the manifest first: without it nobody takes the rest for one. Refuses a
/// directory with anything else in it, before removing any.
Result<void> empty_directory(const std::string& directory) {
    auto names = container::list_directory(directory);
    if (!names) return pass(names);
    const auto foreign = std::find_if_not(names->begin(), names->end(), is_own_file);
    if (foreign != names->end()) {
        return fail(
            ErrorKind::invalid, directory,
            fmt::format("holds {}, which no synthetic container has; remove it or choose another destination",
                        container::printable(*foreign)));
    }
    std::stable_partition(names->begin(), names->end(),
                          [](const std::string& name) { return name == container::kManifestName; });
    for (const std::string& name : *names) {
        if (const auto ok = container::remove_file(container::join_path(directory, name)); !ok) return ok;
    }
    return {};
}

Result<void> check_synthetic(const std::string& directory) {
    const auto existing = container::Container::open(directory);
    if (!existing) return pass(existing);
    if (existing->manifest().trunk_recipe.ends_with(kSynthMark)) return {};
    return fail(
        ErrorKind::invalid, directory,
        "holds a converted model, which --force does not replace; remove it or choose another destination");
}

}  // namespace

SynthTarget::SynthTarget(std::string_view destination)
    : destination_(without_slashes(destination)), partial_(destination_ + std::string(kPartialSuffix)) {}

SynthTarget::~SynthTarget() {
    // Whoever stops or fails has been told why; what cannot be removed, the next run removes.
    if (begun_ && empty_directory(partial_)) static_cast<void>(container::remove_directory(partial_));
}

Result<void> SynthTarget::check_usable(bool replace) const {
    if (container::is_file(destination_)) {
        return fail(ErrorKind::invalid, destination_, "is a file; choose another destination");
    }
    if (!container::is_directory(destination_)) return {};
    const auto names = container::list_directory(destination_);
    if (!names) return pass(names);
    if (names->empty()) return {};
    if (replace && container::is_container(destination_)) return check_synthetic(destination_);
    return fail(ErrorKind::invalid, destination_,
                container::is_container(destination_)
                    ? "exists already; remove it, choose another destination or, if synthetic, use --force"
                    : "is not empty; choose another destination");
}

uint64_t SynthTarget::free_bytes() const {
    return container::free_space(destination_).value_or(0);
}

Result<void> SynthTarget::check_space(uint64_t bytes) const {
    uint64_t present = 0;  // left by a killed run, removed by begin()
    if (container::is_directory(partial_)) {
        for (const std::string& name :
             container::list_directory(partial_).value_or(std::vector<std::string>())) {
            present += container::file_size(container::join_path(partial_, name)).value_or(0);
        }
    }
    const uint64_t needed = bytes + kSpareBytes;
    const uint64_t free = free_bytes() + present;
    if (free >= needed) return {};
    return fail(
        ErrorKind::capacity, destination_,
        fmt::format(
            "the container needs {:.2f} GiB and the file system has {:.2f} GiB free; free some space, "
            "store fewer experts (--unique-experts) or choose another destination",
            static_cast<double>(needed) / (1 << 30), static_cast<double>(free) / (1 << 30)));
}

Result<void> SynthTarget::begin() {
    if (const auto ok = container::make_directory(partial_); !ok) return ok;
    auto lock = container::DirectoryLock::acquire(partial_);
    if (!lock) return pass(lock);
    lock_ = std::move(*lock);
    if (const auto ok = empty_directory(partial_); !ok) return ok;
    begun_ = true;
    return {};
}

std::string SynthTarget::path(std::string_view name) const {
    return container::join_path(partial_, name);
}

Result<void> SynthTarget::finish() {
    if (container::is_directory(destination_)) {
        if (const auto ok = empty_directory(destination_); !ok) return ok;
    }
    if (const auto ok = container::rename_directory(partial_, destination_); !ok) return ok;
    begun_ = false;
    return {};
}

}  // namespace waste::engine
