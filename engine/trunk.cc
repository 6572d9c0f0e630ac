#include "engine/trunk.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string_view>

#include "container/checksum.h"
#include "container/file.h"
#include "container/memory.h"
#include "container/text.h"
#include "engine/saturate.h"
#include "engine/tensor_list.h"

namespace waste::engine {
namespace {

using container::ReadState;

/// The piece a tensor belongs to; -1: none.
int64_t piece_of(std::string_view name, int64_t layers) {
    return name == kHeadName ? layers : layer_of_tensor(name, layers).value_or(-1);
}

uint64_t padded_bytes(const container::TensorEntry& tensor) {
    return round_up(tensor.bytes, container::kAlignment);
}

}  // namespace

std::vector<TrunkPiece> trunk_pieces(const container::Manifest& manifest, int64_t layers) {
    std::vector<TrunkPiece> pieces(static_cast<size_t>(layers) + 1);
    for (size_t i = 0; i < manifest.tensors.size(); i++) {
        const container::TensorEntry& tensor = manifest.tensors[i];
        const int64_t index = piece_of(tensor.name, layers);
        if (index < 0) continue;
        TrunkPiece& piece = pieces[static_cast<size_t>(index)];
        const uint64_t begin = piece.tensors.empty() ? tensor.offset : std::min(piece.offset, tensor.offset);
        const uint64_t end = std::max(piece.offset + piece.bytes, tensor.offset + padded_bytes(tensor));
        piece.offset = begin;
        piece.bytes = end - begin;
        piece.tensors.push_back(i);
    }
    return pieces;
}

Result<std::unique_ptr<Trunk>> Trunk::open(const container::Container& container, const ModelConfig& config,
                                           const TrunkOptions& options, container::DriveReader* reader,
                                           uint32_t file) {
    std::unique_ptr<Trunk> trunk(new Trunk(container));
    trunk->reader_ = reader;
    trunk->file_ = file;
    trunk->verify_ = options.verify;
    trunk->place_.resize(container.manifest().tensors.size());
    if (options.streams(config.num_hidden_layers)) {
        trunk->streamed_begin_ = options.mapped_layers;
        trunk->streamed_end_ = options.streamed_end(config.num_hidden_layers);
        if (const auto ok = trunk->prepare_to_stream(config); !ok) return pass(ok);
    } else if (options.copy) {
        if (const auto ok = trunk->copy(); !ok) return pass(ok);
    }
    if (options.lock) trunk->lock_memory(config.num_hidden_layers);
    return trunk;
}

Result<void> Trunk::prepare_to_stream(const ModelConfig& config) {
    const container::Manifest& manifest = container_->manifest();
    auto pieces = trunk_pieces(manifest, config.num_hidden_layers);
    pieces.resize(static_cast<size_t>(streamed_end_));
    pieces.erase(pieces.begin(), pieces.begin() + streamed_begin_);
    for (const TrunkPiece& piece : pieces) {
        uint64_t content = 0;
        for (const size_t tensor : piece.tensors) content += padded_bytes(manifest.tensors[tensor]);
        if (piece.offset + piece.bytes > manifest.trunk_bytes || piece.bytes != content) {
            return fail(
                ErrorKind::unsupported, container_->directory(),
                "a layer of its trunk is not one range of whole pages, so it cannot be streamed; convert "
                "it again");
        }
        buffer_bytes_ = std::max(buffer_bytes_, piece.bytes);
    }
    auto memory = container::SystemMemory::map(2 * buffer_bytes_);
    if (!memory) {
        return fail(ErrorKind::capacity, "trunk buffers",
                    fmt::format("not enough memory for two of {} bytes", buffer_bytes_));
    }
    memory_ = std::move(*memory);
    streamed_ = std::move(pieces);
    pieces_ = static_cast<size_t>(config.num_hidden_layers) + 1;
    for (size_t i = 0; i < streamed_.size(); i++) {
        for (const size_t tensor : streamed_[i].tensors) {
            place_[tensor] = memory_of(i) + (manifest.tensors[tensor].offset - streamed_[i].offset);
        }
    }
    return {};
}

Result<void> Trunk::copy() {
    constexpr uint64_t kPieceBytes = 8 << 20;
    const container::Manifest& manifest = container_->manifest();
    auto memory = container::SystemMemory::map(manifest.trunk_bytes);
    auto file =
        container::ReadableFile::open(container::join_path(container_->directory(), container::kTrunkName));
    if (!file) return pass(file);
    if (!memory) {
        return fail(ErrorKind::capacity, "trunk copy",
                    fmt::format("not enough memory for {} bytes", manifest.trunk_bytes));
    }
    memory_ = std::move(*memory);
    for (size_t i = 0; i < manifest.tensors.size(); i++) {
        const container::TensorEntry& tensor = manifest.tensors[i];
        if (tensor.name == kEmbeddingName) continue;
        place_[i] = memory_.data() + tensor.offset;
        for (uint64_t at = 0; at < tensor.bytes; at += kPieceBytes) {
            const std::span<std::byte> piece(place_[i] + at, std::min(kPieceBytes, tensor.bytes - at));
            if (const auto ok = file->read_at(tensor.offset + at, piece); !ok) return ok;
        }
    }
    return {};
}

void Trunk::lock_memory(int64_t layers) {
    const container::Manifest& manifest = container_->manifest();
    uint64_t locked = 0;
    int reason = 0;
    for (const container::TensorEntry& tensor : manifest.tensors) {
        const auto view = container_->tensor(tensor.name);
        if (tensor.name == kEmbeddingName || !view) continue;
        const auto bytes = bytes_of(*view);
        if (const int64_t piece = piece_of(tensor.name, layers); piece >= 0 && !holds(piece)) continue;
        const int refused = container::lock_in_memory(bytes);
        if (refused == 0) {
            locked += bytes.size();
        } else if (reason == 0) {
            reason = refused;
        }
    }
    locked_ = fmt::format(", {} locked in memory", container::byte_count(locked));
    if (reason != 0) {
        lock_refused_ = true;
        locked_ += fmt::format(" and no more: {} (`ulimit -l` is the limit)", std::strerror(reason));
    }
}

std::span<const std::byte> Trunk::bytes_of(const container::TensorView& tensor) const {
    const std::byte* place =
        place_[static_cast<size_t>(tensor.entry - container_->manifest().tensors.data())];
    return place ? std::span(place, tensor.data.size()) : tensor.data;
}

std::string Trunk::description() const {
    if (streams()) {
        return fmt::format("{} of {} pieces mapped, the others streamed, {}{}", pieces_ - streamed_.size(),
                           pieces_, reader_->description(), locked_);
    }
    return (memory_.data() ? "copied" : "mapped") + locked_;
}

void Trunk::start_read(size_t index) {
    Buffer& buffer = buffer_of(index);
    const TrunkPiece& piece = streamed_[index];
    buffer.holds = index;
    buffer.checked = false;
    container::DriveRead& read = buffer.read;
    read.file = file_;
    read.offset = piece.offset;
    read.length = piece.bytes;
    read.to = memory_of(index);
    read.verify = false;  // each tensor has a checksum of its own
    read.error.reset();
    read.urgent.store(false, std::memory_order_relaxed);
    container::DriveRead* const one = &read;
    reader_->submit({&one, 1});
}

Result<void> Trunk::enter(int64_t piece) {
    if (holds(piece)) return {};
    const auto index = static_cast<size_t>(piece - streamed_begin_);
    Buffer& buffer = buffer_of(index);
    if (buffer.holds != index || buffer.read.state.load(std::memory_order_acquire) == ReadState::failed) {
        buffer.read.state.wait(ReadState::pending, std::memory_order_acquire);
        start_read(index);
    }
    // The piece before is done with: its buffer takes the one after this, over the end to the next block's first.
    const size_t next = (index + 1) % streamed_.size();
    Buffer& other = buffer_of(next);
    if (next % 2 != index % 2 && other.holds != next) {
        other.read.state.wait(ReadState::pending, std::memory_order_acquire);
        start_read(next);
    }
    const auto start = std::chrono::steady_clock::now();
    reader_->hurry(buffer.read);
    buffer.read.state.wait(ReadState::pending, std::memory_order_acquire);
    const auto waited = std::chrono::nanoseconds(std::chrono::steady_clock::now() - start);
    wait_nanoseconds_.fetch_add(static_cast<uint64_t>(waited.count()), std::memory_order_relaxed);
    if (buffer.read.state.load(std::memory_order_acquire) == ReadState::failed) {
        return tl::unexpected(*buffer.read.error);
    }
    if (verify_ && !buffer.checked) {
        if (const auto ok = check(index); !ok) {
            buffer.holds = SIZE_MAX;  // who asks again reads again
            return ok;
        }
        buffer.checked = true;
    }
    return {};
}

Result<void> Trunk::check(size_t index) const {
    for (const size_t i : streamed_[index].tensors) {
        const container::TensorEntry& tensor = container_->manifest().tensors[i];
        if (container::xxh3_64(std::span(place_[i], tensor.bytes)) != tensor.hash) {
            return fail(ErrorKind::corrupt,
                        container::join_path(container_->directory(), container::kTrunkName),
                        fmt::format("tensor {} does not match its checksum", tensor.name));
        }
    }
    return {};
}

}  // namespace waste::engine
