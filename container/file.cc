// Reading: mapped and at offsets.
#include "container/file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

#include "container/system.h"

namespace waste::container {
namespace {

struct OpenedFile {
    Descriptor descriptor;
    uint64_t size;
};

Result<OpenedFile> open_to_read(const std::string& path) {
    auto descriptor = open_descriptor(path, O_RDONLY);
    if (!descriptor) return pass(descriptor);
    const auto size = regular_size(descriptor->number(), path);
    if (!size) return pass(size);
    return OpenedFile{std::move(*descriptor), *size};
}

/// Applies `advice` to the pages that hold the range. Advice is a hint: a refusal changes nothing.
void advise(std::span<const std::byte> mapping, uint64_t offset, uint64_t length, int advice) {
    if (offset >= mapping.size()) return;
    length = std::min<uint64_t>(length, mapping.size() - offset);
    const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
    const uint64_t begin = offset / page * page;
    auto* address = const_cast<std::byte*>(mapping.data() + begin);
    madvise(address, offset + length - begin, advice);
}

}  // namespace

Result<MappedFile> MappedFile::open(const std::string& path) {
    const auto opened = open_to_read(path);
    if (!opened) return pass(opened);
    MappedFile file;
    file.path_ = path;
    if (opened->size == 0) return file;  // mmap refuses a length of zero
    void* address = mmap(nullptr, opened->size, PROT_READ, MAP_SHARED, opened->descriptor.number(), 0);
    if (address == MAP_FAILED) return system_failure(errno, path, "map");
    file.data_ = static_cast<const std::byte*>(address);
    file.size_ = opened->size;
    return file;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : path_(std::move(other.path_)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(data_, other.data_);
    std::swap(size_, other.size_);
    return *this;
}

MappedFile::~MappedFile() {
    if (data_ != nullptr) munmap(const_cast<std::byte*>(data_), size_);
}

void MappedFile::advise_random() const {
    advise(bytes(), 0, size_, MADV_RANDOM);
}

void MappedFile::advise_soon(uint64_t offset, uint64_t length) const {
    advise(bytes(), offset, length, MADV_WILLNEED);
}

void MappedFile::advise_done(uint64_t offset, uint64_t length) const {
    advise(bytes(), offset, length, MADV_DONTNEED);
}

Result<ReadableFile> ReadableFile::open(const std::string& path) {
    auto opened = open_to_read(path);
    if (!opened) return pass(opened);
    ReadableFile file;
    file.path_ = path;
    file.descriptor_ = opened->descriptor.release();
    file.size_ = opened->size;
    return file;
}

ReadableFile::ReadableFile(ReadableFile&& other) noexcept
    : path_(std::move(other.path_)),
      descriptor_(std::exchange(other.descriptor_, -1)),
      size_(std::exchange(other.size_, 0)) {}

ReadableFile& ReadableFile::operator=(ReadableFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(descriptor_, other.descriptor_);
    std::swap(size_, other.size_);
    return *this;
}

ReadableFile::~ReadableFile() {
    if (descriptor_ >= 0) close(descriptor_);
}

Result<void> ReadableFile::read_at(uint64_t offset, std::span<std::byte> out) const {
    return read_fully(descriptor_, path_, offset, out);
}

Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes) {
    const auto opened = open_to_read(path);
    if (!opened) return pass(opened);
    if (opened->size > max_bytes) {
        return fail(ErrorKind::unsupported, path,
                    fmt::format("is {} bytes long, more than the {} allowed here", opened->size, max_bytes));
    }
    std::string text(opened->size, '\0');
    const auto read =
        read_fully(opened->descriptor.number(), path, 0, std::as_writable_bytes(std::span(text)));
    if (!read) return pass(read);
    return text;
}

}  // namespace waste::container
