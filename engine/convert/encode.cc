#include "engine/convert/encode.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>

#include "container/file.h"
#include "kernels/float16.h"
#include "kernels/mxfp4.h"

namespace waste::engine {
namespace {

using container::BankShape;
using container::Dtype;
using container::SourceTensor;
using kernels::Format;
using kernels::kPanelRows;

// Bytes encoded before they are hashed and written: large enough to keep the threads busy, small enough to be
// "a few tensors" on any machine.
constexpr uint64_t kSlabBytes = 16 << 20;

std::string place_of(const Source& source, size_t index) {
    const auto& checkpoint = source.checkpoint();
    return fmt::format("{}: tensor {}", checkpoint.file_of(index), checkpoint.name(index));
}

/// `count` values from element `begin` on, every `stride`-th, widened exactly to f32. Source data is
/// unaligned.
void widen(const SourceTensor& tensor, int64_t begin, int64_t stride, int64_t count, float* out) {
    const std::byte* data = tensor.data.data();
    if (tensor.dtype == Dtype::f32) {
        for (int64_t i = 0; i < count; i++) std::memcpy(out + i, data + (begin + i * stride) * 4, 4);
        return;
    }
    const auto convert = tensor.dtype == Dtype::bf16 ? kernels::bf16_to_f32 : kernels::f16_to_f32;
    for (int64_t i = 0; i < count; i++) {
        uint16_t bits;
        std::memcpy(&bits, data + (begin + i * stride) * 2, 2);
        out[i] = convert(bits);
    }
}

/// False for NaN, infinity and what would become infinity as bf16, be it a weight or a block's scale.
bool all_usable(const float* values, int64_t count) {
    constexpr uint16_t kLargestBf16 = 0x7f7f;
    const float largest = kernels::bf16_to_f32(kLargestBf16);
    return std::all_of(values, values + count, [&](float v) { return std::abs(v) <= largest; });
}

/// Reads rows of a trunk matrix as the container orders them.
class MatrixRows {
  public:
    MatrixRows(const Source& source, const TensorSpec& spec, const SourceTensor& tensor)
        : config_(source.config()), spec_(spec), tensor_(tensor) {}

    void read(int64_t batch, int64_t row, float* out) const {
        const int64_t rank = config_.kv_lora_rank, nope = config_.qk_nope_head_dim;
        const int64_t head_rows = nope + config_.v_head_dim;  // of kv_b_proj: keys first, then values
        const int64_t cols = spec_.shape.back();
        switch (spec_.role) {
            case Role::k_absorb:
                widen(tensor_, batch * head_rows * rank + row, rank, cols, out);
                break;
            case Role::v_up:
                widen(tensor_, (batch * head_rows + nope + row) * rank, 1, cols, out);
                break;
            default:
                widen(tensor_, row * cols, 1, cols, out);
        }
    }

  private:
    const ModelConfig& config_;
    const TensorSpec& spec_;
    const SourceTensor& tensor_;
};

/// Widens up to 16 rows through `read_row`, zeroes the rest, encodes. False if a value is not usable.
template <typename ReadRow>
bool encode_panel(Format format, int64_t rows, int64_t cols, std::vector<float>& scratch,
                  const ReadRow& read_row, std::byte* panel) {
    scratch.resize(static_cast<size_t>(kPanelRows * cols));
    for (int64_t r = 0; r < rows; r++) read_row(r, scratch.data() + r * cols);
    std::fill(scratch.begin() + rows * cols, scratch.end(), 0.0f);
    if (!all_usable(scratch.data(), rows * cols)) return false;
    kernels::format_info(format).encode(scratch.data(), cols, panel);
    return true;
}

tl::unexpected<Error> not_usable(const Source& source, size_t index) {
    return fail(
        ErrorKind::corrupt, place_of(source, index),
        "holds NaN, infinity or a value beyond bf16's largest, 3.39e38; the file is damaged, download it "
        "again");
}

/// One of an expert's three matrices into its place in the record.
Result<void> encode_expert_matrix(const Source& source, const ExpertMatrixSource& from, int64_t rows,
                                  int64_t cols, Format format, std::vector<float>& scratch, std::byte* out) {
    const SourceTensor weight = source.checkpoint().tensor(from.weight);
    const int64_t panel_bytes = kernels::panel_bytes(format, cols);
    const int64_t scale_cols = cols / kernels::kGroupCols;
    const uint8_t *packed = nullptr, *scale = nullptr;
    if (source.packed_experts()) {
        const SourceTensor scales = source.checkpoint().tensor(from.scale);
        packed = reinterpret_cast<const uint8_t*>(weight.data.data());
        scale = reinterpret_cast<const uint8_t*>(scales.data.data());
        if (std::find(scale, scale + rows * scale_cols, uint8_t{255}) != scale + rows * scale_cols) {
            return fail(
                ErrorKind::corrupt, place_of(source, from.scale),
                "holds scale byte 255, which is not a number; the file is damaged, download it again");
        }
    }
    for (int64_t row = 0; row < rows; row += kPanelRows) {
        const int64_t count = std::min(kPanelRows, rows - row);
        std::byte* panel = out + row / kPanelRows * panel_bytes;
        if (format == Format::mxfp4) {
            kernels::mxfp4_repack_panel(packed + row * cols / 2, scale + row * scale_cols, count, cols,
                                        panel);
            continue;
        }
        const auto read_row = [&](int64_t r, float* values) {
            if (packed) {
                kernels::mxfp4_unpack(packed + (row + r) * cols / 2, scale + (row + r) * scale_cols, 1, cols,
                                      values);
            } else {
                widen(weight, (row + r) * cols, 1, cols, values);
            }
        };
        if (!encode_panel(format, count, cols, scratch, read_row, panel))
            return not_usable(source, from.weight);
    }
    return {};
}

}  // namespace

TrunkEncoder::TrunkEncoder(const Source& source, ThreadPool& pool) : source_(source), pool_(pool) {}

Result<void> TrunkEncoder::encode(size_t index, const container::TensorEntry& entry, const Sink& sink) {
    return entry.layout == container::Layout::rows ? encode_rows(index, entry, sink)
                                                   : encode_panels(index, entry, sink);
}

Result<void> TrunkEncoder::encode_rows(size_t index, const container::TensorEntry& entry, const Sink& sink) {
    const SourceTensor tensor = source_.checkpoint().tensor(source_.trunk_source(index));
    std::vector<float> values;
    // A_log may be longer than its shape says; the padding was checked to be zero.
    int64_t elements = 1;
    for (const int64_t dim : entry.shape) elements *= dim;
    constexpr auto kSlabFloats = static_cast<int64_t>(kSlabBytes / sizeof(float));
    for (int64_t begin = 0; begin < elements; begin += kSlabFloats) {
        const int64_t count = std::min(kSlabFloats, elements - begin);
        values.resize(static_cast<size_t>(count));
        widen(tensor, begin, 1, count, values.data());
        if (!all_usable(values.data(), count)) return not_usable(source_, source_.trunk_source(index));
        // bf16 rows were released as bf16, so their bytes are taken as they are.
        const bool as_is = entry.format == Format::bf16;
        const auto width = static_cast<uint64_t>(as_is ? sizeof(uint16_t) : sizeof(float));
        const auto at = static_cast<uint64_t>(begin) * width;
        const auto bytes = as_is ? tensor.data.subspan(at, static_cast<uint64_t>(count) * width)
                                 : std::as_bytes(std::span(values));
        if (const auto ok = sink(at, bytes); !ok) return ok;
    }
    return {};
}

Result<void> TrunkEncoder::encode_panels(size_t index, const container::TensorEntry& entry,
                                         const Sink& sink) {
    const SourceTensor tensor = source_.checkpoint().tensor(source_.trunk_source(index));
    const MatrixRows matrix(source_, source_.trunk()[index], tensor);
    const size_t rank = entry.shape.size();
    const int64_t rows = entry.shape[rank - 2], cols = entry.shape[rank - 1];
    const int64_t panels_per_matrix = kernels::panel_count(rows);
    const int64_t panels = panels_per_matrix * (rank == 3 ? entry.shape[0] : 1);
    const int64_t panel_bytes = kernels::panel_bytes(entry.format, cols);
    const int64_t slab_panels =
        std::max<int64_t>(pool_.size(), static_cast<int64_t>(kSlabBytes) / panel_bytes);
    std::atomic<bool> usable{true};
    for (int64_t first = 0; first < panels; first += slab_panels) {
        const int64_t count = std::min(slab_panels, panels - first);
        slab_.resize(static_cast<size_t>(count * panel_bytes));
        pool_.run(count, [&](int64_t i) {
            thread_local std::vector<float> scratch;
            const int64_t batch = (first + i) / panels_per_matrix;
            const int64_t row = (first + i) % panels_per_matrix * kPanelRows;
            const auto read_row = [&](int64_t r, float* out) { matrix.read(batch, row + r, out); };
            const bool good = encode_panel(entry.format, std::min(kPanelRows, rows - row), cols, scratch,
                                           read_row, slab_.data() + i * panel_bytes);
            if (!good) usable.store(false, std::memory_order_relaxed);
        });
        if (!usable.load()) return not_usable(source_, source_.trunk_source(index));
        if (const auto ok = sink(static_cast<uint64_t>(first * panel_bytes), slab_); !ok) return ok;
    }
    return {};
}

Result<void> encode_expert(const Source& source, int64_t layer, int64_t expert, const BankShape& shape,
                           std::vector<float>& rows, std::span<std::byte> record) {
    struct Part {
        const char* which;
        int64_t rows, cols;
        uint64_t offset;
    };
    const Part parts[] = {{"w1", shape.intermediate_size, shape.input_size, 0},
                          {"w3", shape.intermediate_size, shape.input_size, shape.up_offset()},
                          {"w2", shape.input_size, shape.intermediate_size, shape.down_offset()}};
    std::fill(record.begin(), record.end(), std::byte{0});
    for (const Part& part : parts) {
        const auto from = source.expert_source(layer, expert, part.which);
        if (!from) return pass(from);
        const auto ok = encode_expert_matrix(source, *from, part.rows, part.cols, shape.format, rows,
                                             record.data() + part.offset);
        if (!ok) return ok;
        source.checkpoint().release_pages(from->weight);
    }
    return {};
}

}  // namespace waste::engine
