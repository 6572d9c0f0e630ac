// The bytes of a session file's header and table, shared by its reader and its writer (docs/container-format.md).
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "container/section_file.h"

namespace waste::container {

static_assert(std::endian::native == std::endian::little, "files are little-endian and written as they are");

inline constexpr std::string_view kSectionMagic = "WASTESES";
inline constexpr uint32_t kSectionVersion = 1;
inline constexpr uint64_t kSectionHeaderBytes = 4096;  ///< its last 8 bytes are the checksum of the others

struct SectionHeader {
    char magic[8];
    uint32_t version;
    uint32_t count;
    uint64_t fingerprint[2];  ///< the digits' value, the first 16 of them first
    uint64_t id;
    uint64_t table_offset;
    uint64_t table_checksum;
};
static_assert(sizeof(SectionHeader) == 56);

struct SectionRow {
    uint32_t kind, index;
    uint64_t first;
    uint32_t codec, element;
    uint64_t offset, stored_bytes, raw_bytes, checksum;
};
static_assert(sizeof(SectionRow) == 56);

inline constexpr uint64_t kSectionCount = uint64_t{1} << 20;  ///< most sections of a file

}  // namespace waste::container
