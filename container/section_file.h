// Session files at rest: a header, sections of bytes, a table of them. What the sections mean is the engine's affair
// (engine/session_sections.h); docs/container-format.md has the format byte by byte.
//
// Every byte of a file is covered by a checksum or must be zero. A reader checks header and table at once, a section
// when it is read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "container/file.h"
#include "container/result.h"

namespace waste::container {

/// What a section holds; unique in its file.
struct SectionName {
    uint32_t kind;
    uint32_t index;
    uint64_t first;

    bool operator==(const SectionName&) const = default;
};

enum class SectionCodec : uint32_t { raw = 0, zstd = 1 };

struct SectionEntry {
    SectionName name;
    SectionCodec codec;
    uint32_t element;  ///< how its values are written; the engine's affair
    uint64_t offset;   ///< a multiple of kAlignment
    uint64_t stored_bytes;
    uint64_t raw_bytes;  ///< once decompressed
    uint64_t checksum;   ///< XXH3-64 of the stored bytes
};

/// A file that was opened and whose table holds. Thread-safe. It stays readable after its name has gone to another.
class SectionFile {
  public:
    static Result<SectionFile> open(const std::string& path);

    const std::string& path() const { return file_.path(); }
    uint64_t file_bytes() const { return file_.size(); }
    /// Of the model that it belongs to, 32 hexadecimal digits.
    const std::string& fingerprint() const { return fingerprint_; }
    /// Another for every file ever written.
    uint64_t id() const { return id_; }
    std::span<const SectionEntry> entries() const { return entries_; }
    const SectionEntry* find(const SectionName& name) const;

    /// Fills `out`, which has raw_bytes, and verifies. `what` names the section in errors.
    Result<void> read(const SectionEntry& entry, const std::string& what, std::span<std::byte> out) const;
    /// Reads it and compares checksums only.
    Result<void> verify(const SectionEntry& entry, const std::string& what) const;

  private:
    friend class SectionWriter;  // copies from file_
    explicit SectionFile(ReadableFile file) : file_(std::move(file)) {}
    Result<void> read_header();
    Result<void> read_table(uint64_t offset, uint64_t count, uint64_t checksum);
    /// Reads the stored bytes piece by piece, each to where `place(done, length)` says, then checks them and the zeros
    /// behind them.
    template <typename Place>
    Result<void> read_stored(const SectionEntry& entry, const std::string& what, Place place) const;

    ReadableFile file_;
    std::string fingerprint_;
    uint64_t id_ = 0;
    std::vector<SectionEntry> entries_;
};

/// Writes a file under a temporary name; commit() puts it in place of whatever has the final one. Without commit the
/// destructor removes it.
class SectionWriter {
  public:
    static Result<SectionWriter> create(const std::string& path, const std::string& fingerprint);
    SectionWriter(SectionWriter&&) = default;
    ~SectionWriter() { file_.discard(); }  // a full drive wants its room back

    Result<void> add(const SectionName& name, uint32_t element, SectionCodec codec,
                     std::span<const std::byte> data);
    /// The same section as in another file, taken over without looking at its bytes.
    Result<void> carry(const SectionFile& from, const SectionEntry& entry, const SectionName& name);
    Result<void> commit();

    uint64_t bytes_written() const { return written_; }  ///< by add(), headers and tables aside
    uint64_t bytes_carried() const { return carried_; }

  private:
    SectionWriter(OutputFile file, std::string path, std::string fingerprint);
    Result<void> append(const SectionName& name, uint32_t element, SectionCodec codec, uint64_t raw_bytes,
                        std::span<const std::byte> stored);

    OutputFile file_;
    std::string path_;
    std::string fingerprint_;
    uint64_t id_;
    uint64_t end_;
    std::vector<SectionEntry> entries_;
    uint64_t written_ = 0, carried_ = 0;
};

}  // namespace waste::container
