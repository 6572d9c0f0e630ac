// Sizes, the manifest's text, the fingerprint. Parsing is in manifest_parse.cc.
#include "container/manifest.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "container/checksum.h"
#include "container/text.h"

namespace waste::container {
namespace {

// Far above every model, and low enough that no product of sizes overflows 63 bits.
constexpr int64_t kMaxDimension = (int64_t{1} << 31) - 256;
constexpr int64_t kMaxElements = int64_t{1} << 48;
constexpr int64_t kMaxExperts = int64_t{1} << 16;
constexpr int64_t kMaxExpertSize = int64_t{1} << 20;

uint64_t aligned(uint64_t bytes) {
    return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

std::string_view layout_name(Layout layout) {
    return layout == Layout::panels ? "panels" : "rows";
}

std::string tensor_line(const TensorEntry& tensor) {
    return fmt::format(
        R"({{"name": {}, "format": "{}", "layout": "{}", "shape": [{}], "offset": {}, "bytes": {}, "xxh3": "{}"}})",
        json_string(tensor.name), kernels::format_info(tensor.format).name, layout_name(tensor.layout),
        fmt::join(tensor.shape, ", "), tensor.offset, tensor.bytes, to_hex(tensor.hash));
}

std::string bank_line(const BankEntry& bank) {
    return fmt::format(
        R"({{"layer": {}, "file": {}, "experts": {}, "format": "{}", "input_size": {}, "intermediate_size": {}, )"
        R"("record_bytes": {}, "bytes": {}, "table_xxh3": "{}"}})",
        bank.layer, json_string(bank.file), bank.shape.experts, kernels::format_info(bank.shape.format).name,
        bank.shape.input_size, bank.shape.intermediate_size, bank.shape.record_bytes(), bank.bytes,
        to_hex(bank.table_hash));
}

std::string file_line(const CarriedFile& file) {
    return fmt::format(R"({{"name": {}, "bytes": {}, "xxh3": "{}"}})", json_string(file.name), file.bytes,
                       to_hex(file.hash));
}

/// One entry a line.
template <typename Entry, typename Line>
std::string lines(const std::vector<Entry>& entries, Line line) {
    std::string text;
    for (const Entry& entry : entries) text += (text.empty() ? "\n    " : ",\n    ") + line(entry);
    return text.empty() ? "[]" : "[" + text + "\n  ]";
}

void hash_text(Hasher& hasher, std::string_view text) {
    hasher.update_u64(text.size());
    hasher.update(text);
}

}  // namespace

Result<uint64_t> tensor_bytes(kernels::Format format, Layout layout, std::span<const int64_t> shape) {
    const size_t least = layout == Layout::panels ? 2 : 1;
    if (shape.size() < least || shape.size() > 3) {
        return fail(
            ErrorKind::corrupt, {},
            fmt::format("shape must have {} to 3 dimensions for layout {}", least, layout_name(layout)));
    }
    const bool plain = format == kernels::Format::f32 || format == kernels::Format::bf16;
    if (layout == Layout::rows && !plain) {
        return fail(ErrorKind::corrupt, {},
                    fmt::format("layout rows cannot hold format {}", kernels::format_info(format).name));
    }
    int64_t elements = layout == Layout::panels ? kernels::kPanelRows * kernels::kBlockCols : 1;
    for (const int64_t dimension : shape) {
        if (dimension < 1 || dimension > kMaxDimension || elements > kMaxElements / dimension) {
            return fail(ErrorKind::corrupt, {},
                        fmt::format("shape [{}] is empty or too large", fmt::join(shape, ", ")));
        }
        elements *= dimension;
    }
    if (layout == Layout::rows) {
        return static_cast<uint64_t>(elements * (format == kernels::Format::f32 ? 4 : 2));
    }
    const int64_t matrices = shape.size() == 3 ? shape[0] : 1;
    const int64_t bytes = kernels::matrix_bytes(format, shape[shape.size() - 2], shape[shape.size() - 1]);
    return static_cast<uint64_t>(matrices * bytes);
}

uint64_t BankShape::up_offset() const {
    return static_cast<uint64_t>(kernels::matrix_bytes(format, intermediate_size, input_size));
}

uint64_t BankShape::down_offset() const {
    return 2 * up_offset();
}

uint64_t BankShape::record_bytes() const {
    return aligned(down_offset() +
                   static_cast<uint64_t>(kernels::matrix_bytes(format, input_size, intermediate_size)));
}

uint64_t BankShape::file_bytes() const {
    return static_cast<uint64_t>(experts) * record_bytes() + bank_tail_bytes(experts);
}

Result<void> check_bank_shape(const BankShape& shape, const std::string& place) {
    const auto within = [](int64_t value, int64_t most) { return value >= 1 && value <= most; };
    if (within(shape.experts, kMaxExperts) && within(shape.input_size, kMaxExpertSize) &&
        within(shape.intermediate_size, kMaxExpertSize)) {
        return {};
    }
    return fail(ErrorKind::corrupt, place,
                fmt::format("{} experts of {} x {} are out of range", shape.experts, shape.intermediate_size,
                            shape.input_size));
}

std::string manifest_text(const Manifest& manifest) {
    std::string text = "{\n";
    text += fmt::format("  \"format\": \"waste\",\n  \"version\": {},\n", kFormatVersion);
    text += fmt::format("  \"fingerprint\": {},\n", json_string(manifest.fingerprint));
    text += fmt::format("  \"recipe\": {{\"trunk\": {}, \"experts\": {}}},\n",
                        json_string(manifest.trunk_recipe), json_string(manifest.expert_recipe));
    text += fmt::format("  \"config\": {},\n", json_string(manifest.config));
    text += fmt::format("  \"trunk\": {{\"file\": \"{}\", \"bytes\": {}, \"tensors\": {}}},\n", kTrunkName,
                        manifest.trunk_bytes, lines(manifest.tensors, tensor_line));
    text += fmt::format("  \"banks\": {},\n", lines(manifest.banks, bank_line));
    text += fmt::format("  \"files\": {}\n}}\n", lines(manifest.files, file_line));
    return text;
}

std::string compute_fingerprint(const Manifest& manifest, std::span<const std::vector<ExpertEntry>> tables) {
    Hasher hasher;
    hasher.update_u64(kFormatVersion);
    hash_text(hasher, manifest.config);
    hasher.update_u64(manifest.files.size());
    for (const CarriedFile& file : manifest.files) {
        hash_text(hasher, file.name);
        hasher.update_u64(file.bytes);
        hasher.update_u64(file.hash);
    }
    std::vector<const TensorEntry*> tensors;
    for (const TensorEntry& tensor : manifest.tensors) tensors.push_back(&tensor);
    std::sort(tensors.begin(), tensors.end(), [](const auto* a, const auto* b) { return a->name < b->name; });
    hasher.update_u64(tensors.size());
    for (const TensorEntry* tensor : tensors) {
        hash_text(hasher, tensor->name);
        hash_text(hasher, kernels::format_info(tensor->format).name);
        hash_text(hasher, layout_name(tensor->layout));
        hasher.update_u64(tensor->shape.size());
        for (const int64_t dimension : tensor->shape) hasher.update_u64(static_cast<uint64_t>(dimension));
        hasher.update_u64(tensor->hash);
    }
    hasher.update_u64(manifest.banks.size());
    for (size_t i = 0; i < manifest.banks.size(); ++i) {
        const BankEntry& bank = manifest.banks[i];
        hasher.update_u64(static_cast<uint64_t>(bank.layer));
        hasher.update_u64(static_cast<uint64_t>(bank.shape.experts));
        hasher.update_u64(static_cast<uint64_t>(bank.shape.input_size));
        hasher.update_u64(static_cast<uint64_t>(bank.shape.intermediate_size));
        hash_text(hasher, kernels::format_info(bank.shape.format).name);
        for (const ExpertEntry& expert : tables[i]) hasher.update_u64(expert.hash);
    }
    return hasher.digest_128_hex();
}

}  // namespace waste::container
