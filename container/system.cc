#include "container/system.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <system_error>

namespace waste::container {
namespace {

// Linux moves at most 0x7ffff000 bytes in one call.
constexpr size_t kMaxTransfer = size_t{1} << 30;
constexpr size_t kMaxPseudoFileBytes = 1 << 20;

ErrorKind kind_of(int error_number) {
    switch (error_number) {
        case ENOENT:
        case ENOTDIR:
            return ErrorKind::not_found;
        case ENOSPC:
        case EDQUOT:
        case EFBIG:
            return ErrorKind::capacity;
        default:
            return ErrorKind::io;
    }
}

bool fits_file_offset(uint64_t offset, uint64_t length) {
    constexpr auto kMax = static_cast<uint64_t>(std::numeric_limits<off_t>::max());
    return offset <= kMax && length <= kMax - offset;
}

}  // namespace

Descriptor::~Descriptor() {
    if (number_ >= 0) close(number_);
}

tl::unexpected<Error> system_failure(int error_number, const std::string& path, const std::string& action) {
    const std::string reason = std::generic_category().message(error_number);
    return fail(kind_of(error_number), path, fmt::format("cannot {}: {}", action, reason));
}

Result<Descriptor> open_descriptor(const std::string& path, int flags) {
    // A path with a NUL would silently open a shorter one.
    if (path.empty() || path.find('\0') != std::string::npos) {
        return system_failure(ENOENT, path, "open");
    }
    constexpr mode_t kMode = 0666;
    int number;
    do {
        number = open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK, kMode);
    } while (number < 0 && errno == EINTR);
    if (number < 0) return system_failure(errno, path, "open");
    return Descriptor(number);
}

Result<uint64_t> regular_size(int descriptor, const std::string& path) {
    struct stat status {};
    if (fstat(descriptor, &status) != 0) return system_failure(errno, path, "read its size");
    if (S_ISDIR(status.st_mode)) return fail(ErrorKind::io, path, "is a directory, not a file");
    if (!S_ISREG(status.st_mode)) return fail(ErrorKind::io, path, "is not a regular file");
    return static_cast<uint64_t>(status.st_size);
}

Result<void> read_fully(int descriptor, const std::string& path, uint64_t offset, std::span<std::byte> out) {
    if (!fits_file_offset(offset, out.size())) return system_failure(EOVERFLOW, path, "read");
    while (!out.empty()) {
        const size_t length = std::min(out.size(), kMaxTransfer);
        const ssize_t got = pread(descriptor, out.data(), length, static_cast<off_t>(offset));
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_failure(errno, path, fmt::format("read at offset {}", offset));
        if (got == 0) {
            return fail(
                ErrorKind::corrupt, path,
                fmt::format("truncated: it ends at byte {}, {} bytes are missing", offset, out.size()));
        }
        offset += static_cast<uint64_t>(got);
        out = out.subspan(static_cast<size_t>(got));
    }
    return {};
}

Result<std::string> read_pseudo_file(const std::string& path) {
    const auto file = open_descriptor(path, O_RDONLY);
    if (!file) return pass(file);
    std::string text;
    char buffer[4096];
    while (text.size() < kMaxPseudoFileBytes) {
        const ssize_t got = read(file->number(), buffer, sizeof buffer);
        if (got < 0 && errno == EINTR) continue;
        if (got < 0) return system_failure(errno, path, "read");
        if (got == 0) break;
        text.append(buffer, static_cast<size_t>(got));
    }
    return text;
}

Result<void> write_fully(int descriptor, const std::string& path, uint64_t offset,
                         std::span<const std::byte> data) {
    if (!fits_file_offset(offset, data.size())) return system_failure(EFBIG, path, "write");
    while (!data.empty()) {
        const size_t length = std::min(data.size(), kMaxTransfer);
        const ssize_t put = pwrite(descriptor, data.data(), length, static_cast<off_t>(offset));
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) {
            return system_failure(put < 0 ? errno : ENOSPC, path, fmt::format("write at offset {}", offset));
        }
        offset += static_cast<uint64_t>(put);
        data = data.subspan(static_cast<size_t>(put));
    }
    return {};
}

Result<void> sync_descriptor(int descriptor, const std::string& path) {
    int result;
    do {
        result = fsync(descriptor);
    } while (result != 0 && errno == EINTR);
    if (result != 0) return system_failure(errno, path, "sync");
    return {};
}

Result<void> sync_parent(const std::string& path) {
    const std::string parent = parent_directory(path);
    auto directory = open_descriptor(parent, O_RDONLY | O_DIRECTORY);
    if (!directory) return pass(directory);
    return sync_descriptor(directory->number(), parent);
}

std::string parent_directory(const std::string& path) {
    const size_t last = path.find_last_not_of('/');
    if (last == std::string::npos) return path.empty() ? "." : "/";
    const size_t slash = path.rfind('/', last);
    if (slash == std::string::npos) return ".";
    const size_t end = path.find_last_not_of('/', slash);
    return end == std::string::npos ? "/" : path.substr(0, end + 1);
}

void ask_for_short_turns() {
    // struct sched_attr of the kernel, which Debian 12's headers do not offer without clashing with <sched.h>. For
    // ordinary threads `runtime` is the length of a turn since Linux 6.12; the scheduler prefers who asks for a short
    // one, and lets it have its share of the time all the same.
    struct {
        uint32_t size = 48;
        uint32_t policy = 0;
        uint64_t flags = 0x08;  // SCHED_FLAG_KEEP_POLICY
        int32_t nice = 0;
        uint32_t priority = 0;
        uint64_t runtime = 100'000;  // nanoseconds, the least there is
        uint64_t deadline = 0;
        uint64_t period = 0;
    } attributes;
    static_assert(sizeof attributes == 48);
    errno = 0;
    attributes.nice = getpriority(PRIO_PROCESS, static_cast<id_t>(syscall(SYS_gettid)));
    if (errno == 0) (void)syscall(SYS_sched_setattr, 0, &attributes, 0);
}

}  // namespace waste::container
