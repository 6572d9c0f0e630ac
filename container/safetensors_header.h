// The two JSON texts of a checkpoint, parsed from memory: a safetensors header and the index's weight_map.
// Both are read as a stream of events, never as a tree: an index may name half a million tensors.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "container/safetensors.h"

namespace waste::container {

inline constexpr uint64_t kMaxHeaderBytes = uint64_t{256} << 20;
inline constexpr uint64_t kHeaderLengthBytes = 8;
inline constexpr std::string_view kSafetensorsSuffix = ".safetensors";

struct HeaderTensor {
    std::string name;
    Dtype dtype;
    std::vector<int64_t> shape;
    uint64_t begin;  ///< of the data, from the start of the file
    uint64_t end;
};

/// All tensors of a file in header order, every check of safetensors.h passed. `place` names the file in
/// errors.
Result<std::vector<HeaderTensor>> parse_safetensors_header(std::span<const std::byte> file,
                                                           const std::string& place);

/// Length of the header with its length field, of a file that parse_safetensors_header accepted.
uint64_t header_bytes(std::span<const std::byte> file);

/// Elements times element size; an error on overflow or a negative dimension.
Result<uint64_t> dense_bytes(Dtype dtype, std::span<const int64_t> shape, const std::string& place);

/// Which shard holds which tensor.
struct WeightMap {
    struct Entry {
        uint64_t name_begin;
        uint32_t name_length;
        uint32_t shard;
    };
    std::string names;                ///< all names, back to back
    std::vector<Entry> entries;       ///< in name order, no name twice
    std::vector<std::string> shards;  ///< sorted plain file names

    std::string_view name(const Entry& entry) const {
        return std::string_view(names).substr(entry.name_begin, entry.name_length);
    }
};

Result<WeightMap> parse_weight_map(std::string_view text, const std::string& place);

}  // namespace waste::container
