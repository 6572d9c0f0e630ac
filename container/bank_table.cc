// The binary table and footer at the end of a bank.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "container/checksum.h"
#include "container/manifest.h"

namespace waste::container {
namespace {

constexpr std::string_view kMagic = "WASTEBNK";
constexpr uint64_t kEntryBytes = 32;
// Where the footer's fields lie in it; docs/container-format.md has the same list.
constexpr size_t kVersionAt = 8;
constexpr size_t kFormatAt = 12;
constexpr size_t kLayerAt = 16;
constexpr size_t kExpertsAt = 24;
constexpr size_t kInputSizeAt = 32;
constexpr size_t kIntermediateSizeAt = 40;
constexpr size_t kRecordBytesAt = 48;
constexpr size_t kTableOffsetAt = 56;
constexpr size_t kTableHashAt = 64;
constexpr size_t kFooterHashAt = 72;
constexpr uint64_t kFooterBytes = 80;

template <typename Integer>
void put(std::vector<std::byte>& out, Integer value) {
    for (size_t i = 0; i < sizeof(value); ++i) out.push_back(static_cast<std::byte>(value >> (8 * i)));
}

template <typename Integer>
Integer get(std::span<const std::byte> bytes, size_t at) {
    Integer value = 0;
    for (size_t i = 0; i < sizeof(value); ++i) {
        value |= static_cast<Integer>(std::to_integer<Integer>(bytes[at + i]) << (8 * i));
    }
    return value;
}

std::vector<std::byte> table_bytes(std::span<const ExpertEntry> entries) {
    std::vector<std::byte> out;
    out.reserve(entries.size() * kEntryBytes);
    for (const ExpertEntry& entry : entries) {
        put(out, entry.file);
        put(out, entry.layout);
        put(out, entry.offset);
        put(out, entry.length);
        put(out, entry.hash);
    }
    return out;
}

Result<void> check_footer(std::span<const std::byte> footer, const BankEntry& bank,
                          const std::string& place) {
    if (std::memcmp(footer.data(), kMagic.data(), kMagic.size()) != 0) {
        return fail(ErrorKind::corrupt, place, "does not end in the footer of an expert bank");
    }
    const auto version = get<uint32_t>(footer, kVersionAt);
    if (version != kFormatVersion) {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("is a bank of format version {}, this waste reads version {}", version,
                                kFormatVersion));
    }
    if (get<uint64_t>(footer, kFooterHashAt) != xxh3_64(footer.first(kFooterHashAt))) {
        return fail(ErrorKind::corrupt, place, "the footer's checksum does not match");
    }
    const struct {
        std::string_view name;
        uint64_t found;
        uint64_t expected;
    } fields[] = {
        {"format", get<uint32_t>(footer, kFormatAt), static_cast<uint64_t>(bank.shape.format)},
        {"layer", get<uint64_t>(footer, kLayerAt), static_cast<uint64_t>(bank.layer)},
        {"experts", get<uint64_t>(footer, kExpertsAt), static_cast<uint64_t>(bank.shape.experts)},
        {"input_size", get<uint64_t>(footer, kInputSizeAt), static_cast<uint64_t>(bank.shape.input_size)},
        {"intermediate_size", get<uint64_t>(footer, kIntermediateSizeAt),
         static_cast<uint64_t>(bank.shape.intermediate_size)},
        {"record_bytes", get<uint64_t>(footer, kRecordBytesAt), bank.shape.record_bytes()},
        {"table hash", get<uint64_t>(footer, kTableHashAt), bank.table_hash},
    };
    for (const auto& field : fields) {
        if (field.found == field.expected) continue;
        return fail(ErrorKind::corrupt, place,
                    fmt::format("{} is {} in the footer and {} in the manifest", field.name, field.found,
                                field.expected));
    }
    return {};
}

Result<ExpertEntry> parse_entry(std::span<const std::byte> bytes, uint64_t record_bytes, uint64_t records_end,
                                const std::string& place) {
    const ExpertEntry entry{get<uint32_t>(bytes, 0), get<uint32_t>(bytes, 4), get<uint64_t>(bytes, 8),
                            get<uint64_t>(bytes, 16), get<uint64_t>(bytes, 24)};
    if (entry.file != 0 || entry.layout != 0) {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("file {} and layout {} need a newer waste", entry.file, entry.layout));
    }
    if (entry.length != record_bytes) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("length {} is not that of a record, {}", entry.length, record_bytes));
    }
    if (entry.offset % record_bytes != 0 || entry.offset > records_end ||
        records_end - entry.offset < record_bytes) {
        return fail(
            ErrorKind::corrupt, place,
            fmt::format("offset {} is not that of a record before byte {}", entry.offset, records_end));
    }
    return entry;
}

/// Only what an entry names is ever hashed, so no byte of the records may be without one. Offsets were
/// checked to be those of records before `records_end`.
Result<void> check_coverage(std::span<const ExpertEntry> entries, uint64_t record_bytes, uint64_t records_end,
                            const std::string& place) {
    std::vector<uint64_t> offsets;
    for (const ExpertEntry& entry : entries) offsets.push_back(entry.offset);
    std::sort(offsets.begin(), offsets.end());
    uint64_t covered = 0;
    for (const uint64_t offset : offsets) {
        if (offset > covered) break;
        covered = offset + record_bytes;
    }
    if (covered == records_end) return {};
    return fail(ErrorKind::corrupt, place,
                fmt::format("the record at byte {} belongs to no expert of the table", covered));
}

}  // namespace

uint64_t bank_tail_bytes(int64_t experts) {
    return static_cast<uint64_t>(experts) * kEntryBytes + kFooterBytes;
}

uint64_t bank_table_hash(std::span<const ExpertEntry> entries) {
    return xxh3_64(table_bytes(entries));
}

std::vector<std::byte> bank_table_bytes(const BankShape& shape, int64_t layer,
                                        std::span<const ExpertEntry> entries) {
    uint64_t table_offset = 0;
    for (const ExpertEntry& entry : entries) {
        table_offset = std::max(table_offset, entry.offset + entry.length);
    }
    std::vector<std::byte> out = table_bytes(entries);
    const uint64_t table_hash = xxh3_64(out);
    const size_t footer_at = out.size();
    for (const char c : kMagic) put(out, static_cast<uint8_t>(c));
    put(out, static_cast<uint32_t>(kFormatVersion));
    put(out, static_cast<uint32_t>(shape.format));
    put(out, static_cast<uint64_t>(layer));
    put(out, static_cast<uint64_t>(shape.experts));
    put(out, static_cast<uint64_t>(shape.input_size));
    put(out, static_cast<uint64_t>(shape.intermediate_size));
    put(out, shape.record_bytes());
    put(out, table_offset);
    put(out, table_hash);
    put(out, xxh3_64(std::span<const std::byte>(out).subspan(footer_at)));
    return out;
}

Result<std::vector<ExpertEntry>> parse_bank_table(std::span<const std::byte> file, const BankEntry& bank,
                                                  const std::string& place) {
    const auto usable = check_bank_shape(bank.shape, place);
    if (!usable) return pass(usable);
    const uint64_t tail = bank_tail_bytes(bank.shape.experts);
    if (file.size() < tail) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("truncated: its table needs {} bytes, the file has {}", tail, file.size()));
    }
    const auto footer = file.last(kFooterBytes);
    const auto agrees = check_footer(footer, bank, place);
    if (!agrees) return pass(agrees);
    const uint64_t table_offset = file.size() - tail;
    if (get<uint64_t>(footer, kTableOffsetAt) != table_offset) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("the table is at byte {} by its footer and at {} by the file's length",
                                get<uint64_t>(footer, kTableOffsetAt), table_offset));
    }
    const auto table = file.subspan(table_offset, tail - kFooterBytes);
    if (xxh3_64(table) != bank.table_hash) {
        return fail(ErrorKind::corrupt, place, "the expert table's checksum does not match");
    }
    std::vector<ExpertEntry> entries;
    for (uint64_t i = 0; i * kEntryBytes < table.size(); ++i) {
        const auto entry =
            parse_entry(table.subspan(i * kEntryBytes, kEntryBytes), bank.shape.record_bytes(), table_offset,
                        fmt::format("{}: layer {} expert {}", place, bank.layer, i));
        if (!entry) return pass(entry);
        entries.push_back(*entry);
    }
    const auto covered = check_coverage(entries, bank.shape.record_bytes(), table_offset, place);
    if (!covered) return pass(covered);
    return entries;
}

}  // namespace waste::container
