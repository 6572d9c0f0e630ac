#include "container/section_file.h"

#include <fmt/format.h>
#include <zstd.h>

#include <algorithm>
#include <array>

#include "container/checksum.h"
#include "container/manifest.h"
#include "container/section_format.h"

namespace waste::container {
namespace {

constexpr uint64_t kPieceBytes = uint64_t{1} << 20;

tl::unexpected<Error> damaged(const std::string& path, std::string_view what, std::string_view how) {
    return fail(ErrorKind::corrupt, path, fmt::format("{} {}; the session file is damaged", what, how));
}

bool all_zero(std::span<const std::byte> bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

uint64_t padding_behind(uint64_t end) {
    return (kAlignment - end % kAlignment) % kAlignment;
}

}  // namespace

Result<SectionFile> SectionFile::open(const std::string& path) {
    auto opened = ReadableFile::open(path);
    if (!opened) return pass(opened);
    SectionFile file(std::move(*opened));
    const auto read = file.read_header();
    if (!read) return pass(read);
    return file;
}

Result<void> SectionFile::read_header() {
    std::array<std::byte, kSectionHeaderBytes> page;
    SectionHeader header;
    if (file_.size() < page.size()) {
        return fail(ErrorKind::corrupt, path(),
                    "is not a session file: it is shorter than the header of one");
    }
    if (const auto read = file_.read_at(0, page); !read) return read;
    std::memcpy(&header, page.data(), sizeof(header));
    if (std::string_view(header.magic, sizeof(header.magic)) != kSectionMagic) {
        return fail(ErrorKind::corrupt, path(), "is not a session file");
    }
    uint64_t checksum;
    const auto checked = std::span(page).first(page.size() - sizeof(checksum));
    std::memcpy(&checksum, page.data() + checked.size(), sizeof(checksum));
    if (xxh3_64(checked) != checksum) return damaged(path(), "the header", "does not match its checksum");
    if (header.version != kSectionVersion) {
        return fail(ErrorKind::unsupported, path(),
                    fmt::format("is a session file of version {}, this program reads version {}",
                                header.version, kSectionVersion));
    }
    if (!all_zero(checked.subspan(sizeof(header))))
        return damaged(path(), "the header", "has bytes that mean nothing");
    fingerprint_ = to_hex(header.fingerprint[0]) + to_hex(header.fingerprint[1]);
    id_ = header.id;
    return read_table(header.table_offset, header.count, header.table_checksum);
}

Result<void> SectionFile::read_table(uint64_t offset, uint64_t count, uint64_t checksum) {
    const uint64_t bytes = count * sizeof(SectionRow);
    if (count > kSectionCount || offset > file_.size() || file_.size() - offset != bytes) {
        return damaged(path(), "the table of sections", "does not end where the file does");
    }
    std::vector<SectionRow> rows(count);
    if (const auto read = file_.read_at(offset, std::as_writable_bytes(std::span(rows))); !read) return read;
    if (xxh3_64(std::as_bytes(std::span(rows))) != checksum) {
        return damaged(path(), "the table of sections", "does not match its checksum");
    }
    uint64_t next = kSectionHeaderBytes;
    entries_.reserve(rows.size());
    for (const SectionRow& row : rows) {
        // Sections follow each other without gaps, the table behind the last one.
        if (row.offset != next || row.stored_bytes > offset - next ||
            padding_behind(row.stored_bytes) > offset - next - row.stored_bytes) {
            return damaged(path(), fmt::format("section {}", entries_.size()), "lies in another's place");
        }
        if (row.codec > static_cast<uint32_t>(SectionCodec::zstd) ||
            (row.codec == 0 && row.raw_bytes != row.stored_bytes)) {
            return damaged(path(), fmt::format("section {}", entries_.size()), "is written in no known way");
        }
        entries_.push_back({{row.kind, row.index, row.first},
                            static_cast<SectionCodec>(row.codec),
                            row.element,
                            row.offset,
                            row.stored_bytes,
                            row.raw_bytes,
                            row.checksum});
        next += row.stored_bytes + padding_behind(row.stored_bytes);
    }
    if (next != offset) return damaged(path(), "the table of sections", "does not begin behind the last one");
    return {};
}

const SectionEntry* SectionFile::find(const SectionName& name) const {
    const auto found = std::find_if(entries_.begin(), entries_.end(),
                                    [&](const SectionEntry& entry) { return entry.name == name; });
    return found == entries_.end() ? nullptr : &*found;
}

template <typename Place>
Result<void> SectionFile::read_stored(const SectionEntry& entry, const std::string& what, Place place) const {
    Hasher hasher;
    for (uint64_t done = 0; done < entry.stored_bytes;) {
        const uint64_t length = std::min(kPieceBytes, entry.stored_bytes - done);
        const std::span<std::byte> piece = place(done, length);
        if (const auto read = file_.read_at(entry.offset + done, piece); !read) return read;
        hasher.update(piece);
        done += length;
    }
    if (hasher.digest_64() != entry.checksum) return damaged(path(), what, "does not match its checksum");
    std::array<std::byte, kAlignment> padding;
    const auto behind = std::span(padding).first(padding_behind(entry.stored_bytes));
    if (const auto read = file_.read_at(entry.offset + entry.stored_bytes, behind); !read) return read;
    if (!all_zero(behind)) return damaged(path(), what, "is followed by bytes that are not zero");
    return {};
}

Result<void> SectionFile::read(const SectionEntry& entry, const std::string& what,
                               std::span<std::byte> out) const {
    if (entry.raw_bytes != out.size()) {
        return damaged(path(), what,
                       fmt::format("has {} bytes where {} belong", entry.raw_bytes, out.size()));
    }
    if (entry.codec == SectionCodec::raw) {
        return read_stored(entry, what,
                           [&](uint64_t at, uint64_t length) { return out.subspan(at, length); });
    }
    std::vector<std::byte> stored(entry.stored_bytes);
    const auto read = read_stored(
        entry, what, [&](uint64_t at, uint64_t length) { return std::span(stored).subspan(at, length); });
    if (!read) return read;
    const size_t size = ZSTD_decompress(out.data(), out.size(), stored.data(), stored.size());
    if (ZSTD_isError(size) || size != out.size()) return damaged(path(), what, "cannot be decompressed");
    return {};
}

Result<void> SectionFile::verify(const SectionEntry& entry, const std::string& what) const {
    std::vector<std::byte> piece(std::min(kPieceBytes, entry.stored_bytes));
    return read_stored(entry, what,
                       [&](uint64_t, uint64_t length) { return std::span(piece).first(length); });
}

}  // namespace waste::container
