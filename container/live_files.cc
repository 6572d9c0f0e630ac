#include "container/live_files.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <utility>

#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

constexpr size_t kMaxContent = 4096;
constexpr int kMostFilesOfAProcess = 1000;

bool is_private(int descriptor) {
    constexpr mode_t kOthers = 077;
    struct stat status {};
    return fstat(descriptor, &status) == 0 && S_ISDIR(status.st_mode) && status.st_uid == geteuid() &&
           (status.st_mode & kOthers) == 0;
}

/// Waits its turn: locks here are held for moments.
bool lock_exclusively(int descriptor) {
    int result;
    do {
        result = flock(descriptor, LOCK_EX);
    } while (result != 0 && errno == EINTR);
    return result == 0;
}

/// The directory, locked until the descriptor closes.
Result<Descriptor> lock_directory(const std::string& path) {
    constexpr mode_t kUserOnly = 0700;
    if (mkdir(path.c_str(), kUserOnly) != 0 && errno != EEXIST) {
        return system_failure(errno, path, "make the directory");
    }
    auto descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!descriptor) return pass(descriptor);
    if (!is_private(descriptor->number())) {
        return fail(ErrorKind::invalid, path,
                    "is not a directory of this user alone (mode 0700); remove it, or set XDG_RUNTIME_DIR");
    }
    if (!lock_exclusively(descriptor->number())) return system_failure(errno, path, "lock");
    return descriptor;
}

/// The process of a name like "123-0"; nothing for files that are not ours.
std::optional<int64_t> pid_of(std::string_view name) {
    int64_t pid = 0, count = 0;
    const char* end = name.data() + name.size();
    const auto first = std::from_chars(name.data(), end, pid);
    if (first.ec != std::errc() || first.ptr == end || *first.ptr != '-') return std::nullopt;
    const auto second = std::from_chars(first.ptr + 1, end, count);
    const bool whole = second.ec == std::errc() && second.ptr == end;
    return whole && pid > 0 && count >= 0 ? std::optional(pid) : std::nullopt;
}

std::string read_content(int descriptor) {
    std::string content(kMaxContent, '\0');
    const ssize_t length = pread(descriptor, content.data(), content.size(), 0);
    content.resize(static_cast<size_t>(std::max<ssize_t>(length, 0)));
    return content;
}

/// Removes leftovers on the way. What cannot be opened, or is no regular file, is nobody's.
Result<std::vector<LiveEntry>> list_locked(const std::string& directory) {
    const auto names = list_directory(directory);
    if (!names) return pass(names);
    std::vector<LiveEntry> entries;
    for (const std::string& name : *names) {
        const auto pid = pid_of(name);
        const std::string path = join_path(directory, name);
        if (!pid) continue;
        const auto file = open_descriptor(path, O_RDONLY | O_NOFOLLOW);
        if (!file || !regular_size(file->number(), path)) continue;
        if (flock(file->number(), LOCK_SH | LOCK_NB) == 0) {
            unlink(path.c_str());
        } else if (errno == EWOULDBLOCK) {
            entries.push_back({*pid, read_content(file->number())});
        }
    }
    return entries;
}

/// A file with a name that is free.
Result<Descriptor> create_file(const std::string& directory, std::string& path) {
    for (int count = 0; count < kMostFilesOfAProcess; count++) {
        path = join_path(directory, fmt::format("{}-{}", getpid(), count));
        auto file = open_descriptor(path, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW);
        if (file || access(path.c_str(), F_OK) != 0) return file;
    }
    return fail(ErrorKind::capacity, directory, "has too many files of this process");
}

}  // namespace

std::string user_runtime_directory() {
    const char* base = std::getenv("XDG_RUNTIME_DIR");
    if (base != nullptr && *base == '/') {
        const auto directory = open_descriptor(base, O_RDONLY | O_DIRECTORY);
        if (directory && is_private(directory->number())) return join_path(base, "waste");
    }
    return fmt::format("/tmp/waste-{}", geteuid());
}

Result<std::vector<LiveEntry>> list_live_files(const std::string& directory) {
    const auto lock = lock_directory(directory);
    if (!lock) return pass(lock);
    return list_locked(directory);
}

Result<LiveFile> LiveFile::enter(const std::string& directory, const Decide& decide) {
    const auto lock = lock_directory(directory);
    if (!lock) return pass(lock);
    const auto others = list_locked(directory);
    if (!others) return pass(others);
    const auto content = decide(*others);
    if (!content) return pass(content);
    if (content->size() > kMaxContent) {
        return fail(ErrorKind::invalid, directory, "takes files of 4 KiB at most");
    }
    LiveFile out;
    auto file = create_file(directory, out.path_);
    if (!file) return pass(file);
    out.pid_ = getpid();
    out.descriptor_ = file->release();
    if (!lock_exclusively(out.descriptor_)) return system_failure(errno, out.path_, "lock");
    const auto written = write_fully(out.descriptor_, out.path_, 0, std::as_bytes(std::span(*content)));
    if (!written) return pass(written);
    return out;
}

LiveFile::LiveFile(LiveFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)), pid_(other.pid_) {}

LiveFile& LiveFile::operator=(LiveFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(pid_, other.pid_);
    return *this;
}

LiveFile::~LiveFile() {
    if (descriptor_ < 0) return;
    if (pid_ == getpid()) unlink(path_.c_str());
    close(descriptor_);
}

}  // namespace waste::container
