// The one door to the operating system's files. Paths are UTF-8 strings; every error names the path.
// Objects here are used by one thread at a time unless a method says otherwise.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::container {

/// A file mapped read-only. Views live as long as the object. Thread-safe once open.
class MappedFile {
  public:
    static Result<MappedFile> open(const std::string& path);
    MappedFile(MappedFile&& other) noexcept;
    MappedFile& operator=(MappedFile&& other) noexcept;
    ~MappedFile();

    const std::string& path() const { return path_; }
    std::span<const std::byte> bytes() const { return {data_, size_}; }

    /// Tells the kernel how the mapping will be read: at random (no read-ahead), or this range soon.
    void advise_random() const;
    void advise_soon(uint64_t offset, uint64_t length) const;
    /// Gives the range's resident pages back; the data stays readable.
    void advise_done(uint64_t offset, uint64_t length) const;

  private:
    MappedFile() = default;
    std::string path_;
    const std::byte* data_ = nullptr;
    size_t size_ = 0;
};

/// A file read at offsets, without mapping. read_at is thread-safe.
class ReadableFile {
  public:
    static Result<ReadableFile> open(const std::string& path);
    ReadableFile(ReadableFile&& other) noexcept;
    ReadableFile& operator=(ReadableFile&& other) noexcept;
    ~ReadableFile();

    const std::string& path() const { return path_; }
    uint64_t size() const { return size_; }
    /// Fills `out` from `offset`; a short file is an error.
    Result<void> read_at(uint64_t offset, std::span<std::byte> out) const;

  private:
    friend class OutputFile;  // copies from descriptor_
    ReadableFile() = default;
    std::string path_;
    int descriptor_ = -1;
    uint64_t size_ = 0;
};

/// A file being written under `path` + ".partial"; commit() makes it appear under `path`. Without commit the
/// partial file stays where it is, for a later run to resume or replace. write_at is thread-safe.
class OutputFile {
  public:
    enum class Existing { replace, resume };
    static Result<OutputFile> create(const std::string& path, Existing existing);
    OutputFile(OutputFile&& other) noexcept;
    OutputFile& operator=(OutputFile&& other) noexcept;
    ~OutputFile();

    Result<void> write_at(uint64_t offset, std::span<const std::byte> data) const;
    /// Bytes of another file, which the file system shares or copies by itself where it can.
    Result<void> copy_at(uint64_t offset, const ReadableFile& from, uint64_t from_offset,
                         uint64_t length) const;
    /// Sets the length; the bytes between read as zero.
    Result<void> resize(uint64_t size) const;
    /// Everything written so far is on the drive.
    Result<void> sync() const;
    /// sync, rename to the final name, sync the directory. The object is spent.
    Result<void> commit();
    /// Removes the partial file, unless the object is spent.
    void discard();

  private:
    OutputFile() = default;
    std::string path_;
    int descriptor_ = -1;
};

inline constexpr std::string_view kPartialSuffix = ".partial";

/// Appends whole lines to a journal; each append is on the drive when it returns.
class AppendFile {
  public:
    static Result<AppendFile> open(const std::string& path);
    AppendFile(AppendFile&& other) noexcept;
    AppendFile& operator=(AppendFile&& other) noexcept;
    ~AppendFile();

    Result<void> append(std::string_view line) const;

  private:
    AppendFile() = default;
    std::string path_;
    int descriptor_ = -1;
};

/// Keeps other processes that ask for it out of a directory while the object lives. It goes with the process,
/// however that ends.
class DirectoryLock {
  public:
    /// An error of kind `invalid` if another process holds it.
    static Result<DirectoryLock> acquire(const std::string& path);
    DirectoryLock(DirectoryLock&& other) noexcept;
    DirectoryLock& operator=(DirectoryLock&& other) noexcept;
    ~DirectoryLock();

  private:
    DirectoryLock() = default;
    int descriptor_ = -1;
};

/// The whole file, refused if larger than `max_bytes`.
Result<std::string> read_text_file(const std::string& path, uint64_t max_bytes);
/// Temporary name, sync, rename, sync of the directory.
Result<void> write_file(const std::string& path, std::string_view content);
Result<void> remove_file(const std::string& path);
Result<void> make_directory(const std::string& path);
/// An empty one.
Result<void> remove_directory(const std::string& path);
/// At once and durably. What has the new name must not be, or be an empty directory.
Result<void> rename_directory(const std::string& from, const std::string& to);
Result<std::vector<std::string>> list_directory(const std::string& path);  ///< names, sorted
bool is_file(const std::string& path);
bool is_directory(const std::string& path);
/// An error that says why a file could not be written there: no such directory, no permission, a read-only file system,
/// or something there that is no regular file.
Result<void> check_writable(const std::string& path);
Result<uint64_t> file_size(const std::string& path);
/// When it was last written or touched, in nanoseconds since 1970.
Result<int64_t> file_time(const std::string& path);
/// Makes that now.
Result<void> touch_file(const std::string& path);
/// Bytes an unprivileged process may still write to the file system that holds `path` or its nearest parent.
Result<uint64_t> free_space(const std::string& path);

std::string join_path(std::string_view directory, std::string_view name);
/// The last component, trailing slashes ignored.
std::string base_name(std::string_view path);

}  // namespace waste::container
