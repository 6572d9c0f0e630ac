#include "container/read_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <system_error>
#include <utility>

#include "container/manifest.h"

namespace waste::container {
namespace {

/// 0, or the errno with which a direct read ends.
int try_direct_read(int descriptor) {
    alignas(kAlignment) std::array<std::byte, kAlignment> memory;
    ssize_t got;
    do {
        got = pread(descriptor, memory.data(), memory.size(), 0);
    } while (got < 0 && errno == EINTR);
    return got < 0 ? errno : 0;
}

Result<ReadFile> open_one(const std::string& path, bool direct, int& direct_error) {
    if (direct) {
        auto descriptor = open_descriptor(path, O_RDONLY | O_DIRECT);
        if (descriptor) {
            const auto size = regular_size(descriptor->number(), path);
            if (!size) return pass(size);
            direct_error = try_direct_read(descriptor->number());
            if (direct_error == 0) return ReadFile{std::move(*descriptor), true, false};
        } else {
            direct_error = EINVAL;  // of the flag; if it was of the file, the next open says so
        }
    }
    auto descriptor = open_descriptor(path, O_RDONLY);
    if (!descriptor) return pass(descriptor);
    const auto size = regular_size(descriptor->number(), path);
    if (!size) return pass(size);
    return ReadFile{std::move(*descriptor), false, direct};
}

}  // namespace

Result<ReadFiles> open_read_files(const std::vector<std::string>& paths, bool direct) {
    ReadFiles opened;
    opened.direct = direct;
    if (!direct) opened.why_not_direct = "as asked";
    opened.files.reserve(paths.size());
    for (const std::string& path : paths) {
        int direct_error = 0;
        auto file = open_one(path, direct, direct_error);
        if (!file) return pass(file);
        if (opened.direct && !file->direct) {
            opened.direct = false;
            opened.why_not_direct = fmt::format("{} refuses direct reads: {}", path,
                                                std::generic_category().message(direct_error));
        }
        opened.files.push_back(std::move(*file));
    }
    return opened;
}

void drop_pages(const ReadFile& file, uint64_t offset, uint64_t length) {
    if (!file.drop_pages) return;
    // Advice: where it is refused, the cache fills and nothing else changes.
    posix_fadvise(file.descriptor.number(), static_cast<off_t>(offset), static_cast<off_t>(length),
                  POSIX_FADV_DONTNEED);
}

}  // namespace waste::container
