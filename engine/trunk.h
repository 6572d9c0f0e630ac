// Where the trunk's weights are while a model runs.
//
// mapped: in the file's mapping, kept by the page cache. copied: in anonymous memory, in huge pages where the system
// grants them. streamed: the first layers mapped, the others and lm_head read for every block of tokens, one piece
// ahead, through two buffers: never by page faults, which would read the same bytes in small pieces. Results are the
// same. The embedding is read row by row and is in none of these.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "container/drive_reader.h"
#include "container/memory.h"
#include "container/reader.h"
#include "engine/config.h"

namespace waste::engine {

struct TrunkOptions {
    bool copy = false;           ///< all of it into anonymous memory
    bool lock = false;           ///< keep mapped or copied weights in memory, as far as the system allows it
    int64_t mapped_layers = -1;  ///< the others stream; -1: none does
    bool stream_head = true;     ///< lm_head too, where layers stream
    bool verify = true;          ///< compare each tensor that is streamed with its checksum

    /// The end of the pieces that stream, which begin at mapped_layers.
    int64_t streamed_end(int64_t layers) const { return stream_head ? layers + 1 : layers; }
    bool streams(int64_t layers) const { return mapped_layers >= 0 && mapped_layers < streamed_end(layers); }
};

/// The bytes of trunk.bin that are read together: a layer, or lm_head.
struct TrunkPiece {
    uint64_t offset = 0;  ///< both multiples of container::kAlignment
    uint64_t bytes = 0;
    std::vector<size_t> tensors;  ///< indices into the manifest's
};

/// A model's layers in order, then lm_head. Tensors that belong to neither are small (norms) or the embedding.
std::vector<TrunkPiece> trunk_pieces(const container::Manifest& manifest, int64_t layers);

/// One user at a time where it streams; else immutable.
class Trunk {
  public:
    /// `reader` reads trunk.bin as file `file`; it is used only by a trunk that streams, outlives every use, and ends
    /// before the trunk.
    static Result<std::unique_ptr<Trunk>> open(const container::Container& container,
                                               const ModelConfig& config, const TrunkOptions& options,
                                               container::DriveReader* reader, uint32_t file);

    /// Where a tensor's bytes are whenever its piece is in use.
    std::span<const std::byte> bytes_of(const container::TensorView& tensor) const;
    bool streams() const { return !streamed_.empty(); }
    /// Whether a piece's weights are valid at any time.
    bool holds(int64_t piece) const { return piece < streamed_begin_ || piece >= streamed_end_; }
    /// Whether the system locked less than was asked for.
    bool lock_refused() const { return lock_refused_; }
    /// In what way, and what locking came to, for people.
    std::string description() const;

    /// Held while a block of tokens passes; others wait where the trunk streams.
    std::unique_lock<std::mutex> use() {
        return streams() ? std::unique_lock(mutex_) : std::unique_lock<std::mutex>();
    }
    /// Makes a piece's weights valid until the one after the next is entered. Waits for its read; an error names the
    /// tensor that is damaged, or the place that cannot be read.
    Result<void> enter(int64_t piece);

    uint64_t wait_nanoseconds() const { return wait_nanoseconds_.load(std::memory_order_relaxed); }

  private:
    explicit Trunk(const container::Container& container) : container_(&container) {}
    struct Buffer {
        container::DriveRead read;
        size_t holds = SIZE_MAX;  ///< index into streamed_
        bool checked = false;
    };
    Result<void> copy();
    Result<void> prepare_to_stream(const ModelConfig& config);
    void lock_memory(int64_t layers);
    void start_read(size_t index);
    Result<void> check(size_t index) const;
    Buffer& buffer_of(size_t index) { return buffer_[index % 2]; }
    std::byte* memory_of(size_t index) const { return memory_.data() + index % 2 * buffer_bytes_; }

    const container::Container* container_;
    container::DriveReader* reader_ = nullptr;
    uint32_t file_ = 0;
    bool verify_ = true;
    std::string locked_;  ///< what locking came to
    bool lock_refused_ = false;
    int64_t streamed_begin_ = 0, streamed_end_ = 0;
    std::vector<std::byte*> place_;  ///< of each tensor of the manifest; null: in the mapping
    std::mutex mutex_;
    size_t pieces_ = 0;  ///< of the model
    std::vector<TrunkPiece> streamed_;
    uint64_t buffer_bytes_ = 0;
    Buffer buffer_[2];
    container::SystemMemory memory_;              ///< the copy, or the two buffers
    std::atomic<uint64_t> wait_nanoseconds_ = 0;  ///< read at any time
};

}  // namespace waste::engine
