// Session files whose checksums hold although somebody changed them.
#pragma once

#include <cstring>
#include <string>
#include <string_view>

#include "container/checksum.h"
#include "container/section_format.h"

namespace waste::test {

/// Makes every checksum of the file hold, as far as its table can be found.
inline void reseal(std::string& bytes) {
    using container::SectionHeader;
    using container::SectionRow;
    if (bytes.size() < container::kSectionHeaderBytes) return;
    SectionHeader header;
    std::memcpy(&header, bytes.data(), sizeof(header));
    const uint64_t table_bytes = uint64_t{header.count} * sizeof(SectionRow);
    if (header.table_offset <= bytes.size() && table_bytes <= bytes.size() - header.table_offset) {
        char* table = bytes.data() + header.table_offset;
        for (uint32_t i = 0; i < header.count; i++) {
            SectionRow row;
            std::memcpy(&row, table + i * sizeof(row), sizeof(row));
            if (row.offset > bytes.size() || row.stored_bytes > bytes.size() - row.offset) continue;
            row.checksum = container::xxh3_64(std::string_view(bytes).substr(row.offset, row.stored_bytes));
            std::memcpy(table + i * sizeof(row), &row, sizeof(row));
        }
        header.table_checksum = container::xxh3_64(std::string_view(table, table_bytes));
        std::memcpy(bytes.data(), &header, sizeof(header));
    }
    const size_t checked = container::kSectionHeaderBytes - sizeof(uint64_t);
    const uint64_t sum = container::xxh3_64(std::string_view(bytes).substr(0, checked));
    std::memcpy(bytes.data() + checked, &sum, sizeof(sum));
}

}  // namespace waste::test
