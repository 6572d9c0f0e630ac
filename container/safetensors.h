// Safetensors: one mapped file, and a checkpoint of many. Both are untrusted.
//
// File: 8 bytes little-endian header length, a JSON object name -> {dtype, shape, data_offsets}, then the
// data; offsets are relative to the end of the header and aligned to nothing. "__metadata__" is skipped.
// Source: the safetensors format description (huggingface/safetensors README), read 2026-11.
//
// Opening checks, before any tensor is handed out: the header fits the file, every range lies inside the
// data, shape times element size equals the range, no name occurs twice, ranges do not overlap.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/file.h"
#include "container/result.h"

namespace waste::container {

enum class Dtype : uint8_t { f64, f32, f16, bf16, f8, i64, i32, i16, i8, u8, boolean };
std::string_view dtype_name(Dtype dtype);  ///< the release's spelling: "F32", "BF16", …
int64_t dtype_bytes(Dtype dtype);

inline constexpr int kMaxRank = 8;

/// One stored tensor. The data lives as long as the file it came from.
struct SourceTensor {
    Dtype dtype;
    int rank;
    std::array<int64_t, kMaxRank> shape;
    std::span<const std::byte> data;  ///< little-endian, row-major, unaligned

    int64_t elements() const;
    std::string shape_text() const;  ///< "[7168, 4096]"
};

struct WeightMap;

/// All tensors of a release's directory: `model.safetensors.index.json` with its shards, or one
/// `model.safetensors`. A tensor costs about 130 bytes of memory, its name included. Immutable, thread-safe.
class Checkpoint {
  public:
    static Result<Checkpoint> open(const std::string& directory);
    Checkpoint(Checkpoint&&) noexcept;
    Checkpoint& operator=(Checkpoint&&) noexcept;
    ~Checkpoint();

    /// Number of tensors; `name(i)` and `tensor(i)` are in name order.
    size_t size() const;
    std::string_view name(size_t i) const;
    SourceTensor tensor(size_t i) const;

    bool contains(std::string_view name) const;
    /// Position in name order; an error names the tensor and the directory.
    Result<size_t> find(std::string_view name) const;
    Result<SourceTensor> get(std::string_view name) const;
    /// The shard that holds tensor i, for messages.
    const std::string& file_of(size_t i) const;

    /// Tells the kernel that tensor i's pages will not be read again soon.
    void release_pages(size_t i) const;

    const std::string& directory() const { return directory_; }
    /// Hash over shard names, sizes and headers: changes whenever a tensor's place, shape or type does.
    uint64_t identity() const { return identity_; }
    uint64_t data_bytes() const;  ///< of all tensors

  private:
    struct Record;
    Checkpoint();
    Result<void> add_file(const std::string& file_name);
    Result<void> sort_records();
    Result<void> check_against(const WeightMap& map) const;
    std::string_view name_of(const Record& record) const;

    std::string directory_;
    std::vector<MappedFile> files_;
    std::string names_;            ///< all names, back to back
    std::vector<int64_t> shapes_;  ///< all dimensions, back to back
    std::vector<Record> records_;
    uint64_t identity_ = 0;
};

/// A tensor to be written: `data` row-major, little-endian.
struct NamedTensor {
    std::string name;
    Dtype dtype;
    std::vector<int64_t> shape;
    std::vector<std::byte> data;
};

/// Writes a safetensors file (temporary name, rename), tensors in the given order.
Result<void> write_safetensors(const std::string& path, std::span<const NamedTensor> tensors);

}  // namespace waste::container
