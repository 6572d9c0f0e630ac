// Names, directories and free space.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <memory>
#include <utility>

#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

/// Mode bits of what `path` names, 0 where nothing can be seen.
mode_t mode_of(const std::string& path) {
    struct stat status {};
    return stat(path.c_str(), &status) == 0 ? status.st_mode : 0;
}

}  // namespace

Result<DirectoryLock> DirectoryLock::acquire(const std::string& path) {
    auto descriptor = open_descriptor(path, O_RDONLY | O_DIRECTORY);
    if (!descriptor) return pass(descriptor);
    if (flock(descriptor->number(), LOCK_EX | LOCK_NB) != 0) {
        if (errno == EWOULDBLOCK) return fail(ErrorKind::invalid, path, "another process is writing there");
        return system_failure(errno, path, "lock");
    }
    DirectoryLock lock;
    lock.descriptor_ = descriptor->release();
    return lock;
}

DirectoryLock::DirectoryLock(DirectoryLock&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)) {}

DirectoryLock& DirectoryLock::operator=(DirectoryLock&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

DirectoryLock::~DirectoryLock() {
    if (descriptor_ >= 0) close(descriptor_);
}

Result<void> remove_file(const std::string& path) {
    if (unlink(path.c_str()) != 0) return system_failure(errno, path, "remove");
    return {};
}

Result<void> make_directory(const std::string& path) {
    constexpr mode_t kMode = 0777;
    if (mkdir(path.c_str(), kMode) != 0) {
        if (errno == EEXIST && is_directory(path)) return {};
        return system_failure(errno, path, "make the directory");
    }
    return sync_parent(path);
}

Result<void> remove_directory(const std::string& path) {
    if (rmdir(path.c_str()) != 0) return system_failure(errno, path, "remove the directory");
    return {};
}

Result<void> rename_directory(const std::string& from, const std::string& to) {
    if (rename(from.c_str(), to.c_str()) != 0)
        return system_failure(errno, to, "give the directory its name");
    return sync_parent(to);
}

Result<std::vector<std::string>> list_directory(const std::string& path) {
    // Not the standard library's iterator: where memory is short it ends the program.
    const std::unique_ptr<DIR, int (*)(DIR*)> directory(opendir(path.c_str()), closedir);
    if (!directory) return system_failure(errno, path, "list the directory");
    std::vector<std::string> names;
    errno = 0;
    while (const dirent* entry = readdir(directory.get())) {
        const std::string_view name = entry->d_name;
        if (name != "." && name != "..") names.emplace_back(name);
        errno = 0;
    }
    if (errno != 0) return system_failure(errno, path, "list the directory");
    std::sort(names.begin(), names.end());
    return names;
}

bool is_file(const std::string& path) {
    return S_ISREG(mode_of(path));
}

bool is_directory(const std::string& path) {
    return S_ISDIR(mode_of(path));
}

Result<uint64_t> file_size(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return system_failure(errno, path, "read its size");
    if (S_ISDIR(status.st_mode)) return fail(ErrorKind::io, path, "is a directory, not a file");
    return static_cast<uint64_t>(status.st_size);
}

Result<void> check_writable(const std::string& path) {
    const mode_t mode = mode_of(path);
    if (mode != 0 && !S_ISREG(mode))
        return fail(ErrorKind::invalid, path, "is not a regular file; choose another name");
    const std::string directory = parent_directory(path);
    if (access(directory.c_str(), W_OK | X_OK) == 0) return {};
    return system_failure(errno, path, "be written");
}

Result<int64_t> file_time(const std::string& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return system_failure(errno, path, "read its time");
    return int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
}

Result<void> touch_file(const std::string& path) {
    if (utimensat(AT_FDCWD, path.c_str(), nullptr, 0) != 0)
        return system_failure(errno, path, "set its time");
    return {};
}

Result<uint64_t> free_space(const std::string& path) {
    std::string place = path;
    struct statvfs space {};
    while (statvfs(place.c_str(), &space) != 0) {
        if (errno == EINTR) continue;
        const std::string parent = parent_directory(place);
        if (errno != ENOENT || parent == place) return system_failure(errno, place, "read the free space");
        place = parent;
    }
    uint64_t bytes;
    if (__builtin_mul_overflow(uint64_t{space.f_bavail}, uint64_t{space.f_frsize}, &bytes)) {
        return system_failure(EOVERFLOW, place, "read the free space");
    }
    return bytes;
}

std::string join_path(std::string_view directory, std::string_view name) {
    std::string path(directory);
    if (!path.empty() && path.back() != '/') path += '/';
    path += name;
    return path;
}

std::string base_name(std::string_view path) {
    const size_t last = path.find_last_not_of('/');
    if (last == std::string_view::npos) return std::string(path.substr(0, 1));
    const size_t slash = path.rfind('/', last);
    const size_t begin = slash == std::string_view::npos ? 0 : slash + 1;
    return std::string(path.substr(begin, last + 1 - begin));
}

}  // namespace waste::container
