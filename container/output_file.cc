// Writing: whole files that appear at once, and journals that only grow.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <limits>
#include <vector>

#include "container/file.h"
#include "container/system.h"

namespace waste::container {
namespace {

std::string partial_path(const std::string& path) {
    return path + std::string(kPartialSuffix);
}

/// Length up to and including the last newline: a crash may have left half a line behind it.
Result<uint64_t> whole_lines_length(int descriptor, const std::string& path, uint64_t size) {
    std::array<std::byte, 4096> buffer;
    uint64_t end = size;
    while (end > 0) {
        const uint64_t length = end < buffer.size() ? end : buffer.size();
        const uint64_t begin = end - length;
        const auto read = read_fully(descriptor, path, begin, std::span(buffer).first(length));
        if (!read) return pass(read);
        for (uint64_t i = length; i > 0; --i) {
            if (buffer[i - 1] == std::byte{'\n'}) return begin + i;
        }
        end = begin;
    }
    return uint64_t{0};
}

Result<void> set_length(int descriptor, const std::string& path, uint64_t size) {
    if (size > static_cast<uint64_t>(std::numeric_limits<off_t>::max())) {
        return system_failure(EFBIG, path, "set its length");
    }
    int result;
    do {
        result = ftruncate(descriptor, static_cast<off_t>(size));
    } while (result != 0 && errno == EINTR);
    if (result != 0) return system_failure(errno, path, "set its length");
    return {};
}

}  // namespace

Result<OutputFile> OutputFile::create(const std::string& path, Existing existing) {
    // The rename at the end would replace a device or a link by a file.
    struct stat status {};
    if (lstat(path.c_str(), &status) == 0 && !S_ISREG(status.st_mode)) {
        return fail(ErrorKind::invalid, path, "exists and is not a regular file; choose another name");
    }
    const int flags = O_WRONLY | O_CREAT | (existing == Existing::replace ? O_TRUNC : 0);
    auto descriptor = open_descriptor(partial_path(path), flags);
    if (!descriptor) return pass(descriptor);
    const auto size = regular_size(descriptor->number(), partial_path(path));
    if (!size) return pass(size);
    OutputFile file;
    file.path_ = path;
    file.descriptor_ = descriptor->release();
    return file;
}

OutputFile::OutputFile(OutputFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

OutputFile& OutputFile::operator=(OutputFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

OutputFile::~OutputFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

Result<void> OutputFile::write_at(uint64_t offset, std::span<const std::byte> data) const {
    return write_fully(descriptor_, partial_path(path_), offset, data);
}

Result<void> OutputFile::copy_at(uint64_t offset, const ReadableFile& from, uint64_t from_offset,
                                 uint64_t length) const {
    if (from_offset > from.size() || length > from.size() - from_offset) {
        return fail(ErrorKind::corrupt, from.path(), "is shorter than its table says");
    }
    auto source = static_cast<off_t>(from_offset), target = static_cast<off_t>(offset);
    while (length > 0) {
        const ssize_t copied = copy_file_range(from.descriptor_, &source, descriptor_, &target, length, 0);
        if (copied < 0 && errno == EINTR) continue;
        if (copied <= 0) break;  // not between these two files: the rest goes through memory
        length -= static_cast<uint64_t>(copied);
    }
    std::vector<std::byte> piece(std::min<uint64_t>(length, uint64_t{1} << 20));
    while (length > 0) {
        const std::span<std::byte> part(piece.data(), std::min<uint64_t>(length, piece.size()));
        if (const auto read = from.read_at(static_cast<uint64_t>(source), part); !read) return read;
        if (const auto put = write_at(static_cast<uint64_t>(target), part); !put) return put;
        source += static_cast<off_t>(part.size());
        target += static_cast<off_t>(part.size());
        length -= part.size();
    }
    return {};
}

Result<void> OutputFile::resize(uint64_t size) const {
    return set_length(descriptor_, partial_path(path_), size);
}

Result<void> OutputFile::sync() const {
    return sync_descriptor(descriptor_, partial_path(path_));
}

Result<void> OutputFile::commit() {
    const std::string partial = partial_path(path_);
    const auto synced = sync_descriptor(descriptor_, partial);
    if (!synced) return synced;
    if (rename(partial.c_str(), path_.c_str()) != 0) {
        return system_failure(errno, path_, "give the finished file its name");
    }
    close(std::exchange(descriptor_, -1));
    return sync_parent(path_);
}

void OutputFile::discard() {
    if (descriptor_ < 0) return;
    static_cast<void>(remove_file(partial_path(path_)));
    close(std::exchange(descriptor_, -1));
}

Result<AppendFile> AppendFile::open(const std::string& path) {
    auto descriptor = open_descriptor(path, O_RDWR | O_CREAT | O_APPEND);
    if (!descriptor) return pass(descriptor);
    const int number = descriptor->number();
    const auto size = regular_size(number, path);
    if (!size) return pass(size);
    const auto whole = whole_lines_length(number, path, *size);
    if (!whole) return pass(whole);
    if (*whole != *size) {
        const auto cut = set_length(number, path, *whole);
        if (!cut) return pass(cut);
    }
    const auto durable = sync_parent(path);
    if (!durable) return pass(durable);
    AppendFile file;
    file.path_ = path;
    file.descriptor_ = descriptor->release();
    return file;
}

AppendFile::AppendFile(AppendFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

AppendFile& AppendFile::operator=(AppendFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    return *this;
}

AppendFile::~AppendFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

Result<void> AppendFile::append(std::string_view line) const {
    const std::string text = std::string(line) + '\n';
    std::span<const char> rest(text);
    while (!rest.empty()) {
        const ssize_t put = write(descriptor_, rest.data(), rest.size());
        if (put < 0 && errno == EINTR) continue;
        if (put <= 0) return system_failure(put < 0 ? errno : ENOSPC, path_, "append");
        rest = rest.subspan(static_cast<size_t>(put));
    }
    return sync_descriptor(descriptor_, path_);
}

Result<void> write_file(const std::string& path, std::string_view content) {
    auto file = OutputFile::create(path, OutputFile::Existing::replace);
    if (!file) return pass(file);
    auto written = file->write_at(0, std::as_bytes(std::span(content)));
    if (written) written = file->commit();
    file->discard();  // half a small file is of use to nobody
    return written;
}

}  // namespace waste::container
