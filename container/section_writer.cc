#include <zstd.h>

#include <random>

#include "container/checksum.h"
#include "container/manifest.h"
#include "container/section_file.h"
#include "container/section_format.h"

namespace waste::container {
namespace {

constexpr int kCompression = 3;

uint64_t new_id() {
    std::random_device device;
    return uint64_t{device()} << 32 | device();
}

uint64_t aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

}  // namespace

SectionWriter::SectionWriter(OutputFile file, std::string path, std::string fingerprint)
    : file_(std::move(file)),
      path_(std::move(path)),
      fingerprint_(std::move(fingerprint)),
      id_(new_id()),
      end_(kSectionHeaderBytes) {}

Result<SectionWriter> SectionWriter::create(const std::string& path, const std::string& fingerprint) {
    auto file = OutputFile::create(path, OutputFile::Existing::replace);
    if (!file) return pass(file);
    return SectionWriter(std::move(*file), path, fingerprint);
}

Result<void> SectionWriter::append(const SectionName& name, uint32_t element, SectionCodec codec,
                                   uint64_t raw_bytes, std::span<const std::byte> stored) {
    if (const auto put = file_.write_at(end_, stored); !put) return put;
    entries_.push_back({name, codec, element, end_, stored.size(), raw_bytes, xxh3_64(stored)});
    end_ += aligned(stored.size());
    written_ += stored.size();
    return {};
}

Result<void> SectionWriter::add(const SectionName& name, uint32_t element, SectionCodec codec,
                                std::span<const std::byte> data) {
    if (codec == SectionCodec::raw) return append(name, element, codec, data.size(), data);
    std::vector<std::byte> packed(ZSTD_compressBound(data.size()));
    const size_t size = ZSTD_compress(packed.data(), packed.size(), data.data(), data.size(), kCompression);
    if (ZSTD_isError(size)) return fail(ErrorKind::capacity, path_, ZSTD_getErrorName(size));
    return append(name, element, codec, data.size(), std::span(packed).first(size));
}

Result<void> SectionWriter::carry(const SectionFile& from, const SectionEntry& entry,
                                  const SectionName& name) {
    const uint64_t length = aligned(entry.stored_bytes);  // with its zeros: whole blocks can be shared
    if (const auto copied = file_.copy_at(end_, from.file_, entry.offset, length); !copied) return copied;
    entries_.push_back(entry);
    entries_.back().name = name;
    entries_.back().offset = end_;
    end_ += length;
    carried_ += length;
    return {};
}

Result<void> SectionWriter::commit() {
    std::vector<SectionRow> rows;
    rows.reserve(entries_.size());
    for (const SectionEntry& entry : entries_) {
        rows.push_back({entry.name.kind, entry.name.index, entry.name.first,
                        static_cast<uint32_t>(entry.codec), entry.element, entry.offset, entry.stored_bytes,
                        entry.raw_bytes, entry.checksum});
    }
    const auto table = std::as_bytes(std::span(rows));
    SectionHeader header{};
    std::memcpy(header.magic, kSectionMagic.data(), sizeof(header.magic));
    header.version = kSectionVersion;
    header.count = static_cast<uint32_t>(rows.size());
    for (size_t half = 0; half < 2; half++) {
        const auto value = from_hex(std::string_view(fingerprint_).substr(half * 16, 16));
        if (!value) return fail(ErrorKind::invalid, path_, "the model's fingerprint is not one");
        header.fingerprint[half] = *value;
    }
    header.id = id_;
    header.table_offset = end_;
    header.table_checksum = xxh3_64(table);
    std::vector<std::byte> page(kSectionHeaderBytes);
    std::memcpy(page.data(), &header, sizeof(header));
    const uint64_t checksum = xxh3_64(std::span(page).first(page.size() - sizeof(uint64_t)));
    std::memcpy(page.data() + page.size() - sizeof(checksum), &checksum, sizeof(checksum));
    if (const auto put = file_.write_at(end_, table); !put) return put;
    if (const auto put = file_.write_at(0, page); !put) return put;
    return file_.commit();
}

}  // namespace waste::container
