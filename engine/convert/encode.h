// Tensors of a release turned into the bytes of a container. Deterministic; used to convert and to prove it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "container/manifest.h"
#include "engine/convert/source.h"
#include "engine/parallel.h"

namespace waste::engine {

/// Takes a tensor's bytes in order, in slabs.
using Sink = std::function<Result<void>(uint64_t offset, std::span<const std::byte> bytes)>;

/// Encodes trunk tensors, parallel over panels, in bounded memory.
class TrunkEncoder {
  public:
    TrunkEncoder(const Source& source, ThreadPool& pool);

    /// source.trunk()[index] as `entry` describes it. NaN, Inf and values that
    /// bf16 cannot hold are refused by name, whatever the format.
    Result<void> encode(size_t index, const container::TensorEntry& entry, const Sink& sink);

  private:
    Result<void> encode_rows(size_t index, const container::TensorEntry& entry, const Sink& sink);
    Result<void> encode_panels(size_t index, const container::TensorEntry& entry, const Sink& sink);

    const Source& source_;
    ThreadPool& pool_;
    std::vector<std::byte> slab_;
};

/// One expert's record, padding included, into `record` [shape.record_bytes()]. `rows` is scratch that grows
/// to one panel. Thread-safe for distinct buffers.
Result<void> encode_expert(const Source& source, int64_t layer, int64_t expert,
                           const container::BankShape& shape, std::vector<float>& rows,
                           std::span<std::byte> record);

}  // namespace waste::engine
