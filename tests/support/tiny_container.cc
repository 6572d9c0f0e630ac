#include "tests/support/tiny_container.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <random>

#include "container/checksum.h"
#include "container/file.h"
#include "kernels/format.h"
#include "kernels/mxfp4.h"

namespace waste::test {
namespace {

using container::BankShape;
using container::ExpertEntry;
using container::kAlignment;
using container::Layout;
using kernels::Format;

void pad_to_alignment(std::vector<std::byte>& bytes) {
    bytes.resize((bytes.size() + kAlignment - 1) / kAlignment * kAlignment);
}

void append(std::vector<std::byte>& to, std::span<const std::byte> what) {
    to.insert(to.end(), what.begin(), what.end());
}

std::vector<std::byte> encode_rows(Format format, std::span<const float> values) {
    const size_t element_bytes = format == Format::f32 ? 4 : 2;
    std::vector<std::byte> bytes(values.size() * element_bytes);
    for (size_t i = 0; i < values.size(); ++i) {
        const auto bits = std::bit_cast<uint32_t>(values[i]);
        const auto half = static_cast<uint16_t>(bits >> 16);
        const void* source = format == Format::f32 ? static_cast<const void*>(&bits) : &half;
        std::memcpy(bytes.data() + i * element_bytes, source, element_bytes);
    }
    return bytes;
}

/// Random mxfp4 as a release stores it, repacked.
std::vector<std::byte> arbitrary_mxfp4(int64_t rows, int64_t cols, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<uint8_t> packed(static_cast<size_t>(rows * cols / 2));
    std::vector<uint8_t> scales(static_cast<size_t>(rows * cols / kernels::kGroupCols));
    for (uint8_t& byte : packed) byte = static_cast<uint8_t>(random() & 0xff);
    for (uint8_t& byte : scales) byte = static_cast<uint8_t>(118 + random() % 8);
    const int64_t panel = kernels::panel_bytes(Format::mxfp4, cols);
    std::vector<std::byte> bytes(static_cast<size_t>(kernels::matrix_bytes(Format::mxfp4, rows, cols)));
    for (int64_t row = 0; row < rows; row += kernels::kPanelRows) {
        kernels::mxfp4_repack_panel(packed.data() + row * cols / 2,
                                    scales.data() + row * cols / kernels::kGroupCols,
                                    std::min(kernels::kPanelRows, rows - row), cols,
                                    bytes.data() + row / kernels::kPanelRows * panel);
    }
    return bytes;
}

std::vector<std::byte> arbitrary_matrix(Format format, int64_t rows, int64_t cols, uint32_t seed) {
    if (format == Format::mxfp4) return arbitrary_mxfp4(rows, cols, seed);
    return encode_panels(format, rows, cols, arbitrary_values(static_cast<size_t>(rows * cols), seed));
}

Result<void> write_bytes(const std::string& path, std::span<const std::byte> bytes) {
    return container::write_file(path, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

std::vector<float> arbitrary_values(size_t count, uint32_t seed) {
    std::mt19937 random(seed);
    std::vector<float> values(count);
    for (float& value : values) value = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
    return values;
}

std::vector<std::byte> encode_panels(Format format, int64_t rows, int64_t cols,
                                     std::span<const float> values) {
    const auto panel = static_cast<size_t>(kernels::panel_bytes(format, cols));
    const auto panel_values = static_cast<size_t>(kernels::kPanelRows * cols);
    std::vector<std::byte> bytes(static_cast<size_t>(kernels::matrix_bytes(format, rows, cols)));
    std::vector<float> padded(values.begin(), values.end());
    padded.resize(static_cast<size_t>(kernels::panel_count(rows)) * panel_values);
    for (size_t p = 0; p * panel < bytes.size(); ++p) {
        kernels::format_info(format).encode(padded.data() + p * panel_values, cols, bytes.data() + p * panel);
    }
    return bytes;
}

void TinyContainer::add_tensor(const std::string& name, Format format, Layout layout,
                               const std::vector<int64_t>& shape, std::span<const float> values) {
    std::vector<std::byte> bytes;
    if (layout == Layout::rows) {
        bytes = encode_rows(format, values);
    } else {
        const int64_t rows = shape[shape.size() - 2];
        const int64_t cols = shape[shape.size() - 1];
        const auto matrix = static_cast<size_t>(rows * cols);
        for (size_t at = 0; at < values.size(); at += matrix) {
            append(bytes, encode_panels(format, rows, cols, values.subspan(at, matrix)));
        }
    }
    pad_to_alignment(trunk);
    manifest.tensors.push_back({name, format, layout, shape, trunk.size(), bytes.size(), 0});
    append(trunk, bytes);
}

void TinyContainer::add_bank(int64_t layer, const BankShape& shape, uint32_t seed) {
    Bank bank;
    for (int64_t expert = 0; expert < shape.experts; ++expert) {
        const uint64_t offset = bank.records.size();
        const uint32_t first = seed + 3 * static_cast<uint32_t>(expert);
        append(bank.records,
               arbitrary_matrix(shape.format, shape.intermediate_size, shape.input_size, first));
        append(bank.records,
               arbitrary_matrix(shape.format, shape.intermediate_size, shape.input_size, first + 1));
        append(bank.records,
               arbitrary_matrix(shape.format, shape.input_size, shape.intermediate_size, first + 2));
        pad_to_alignment(bank.records);
        bank.table.push_back({0, 0, offset, bank.records.size() - offset, 0});
    }
    manifest.banks.push_back({layer, "experts-" + std::to_string(layer) + ".bin", shape, 0, 0});
    banks.push_back(std::move(bank));
}

void TinyContainer::seal() {
    manifest.trunk_bytes = trunk.size();
    for (container::TensorEntry& tensor : manifest.tensors) {
        tensor.hash =
            container::xxh3_64(std::span<const std::byte>(trunk).subspan(tensor.offset, tensor.bytes));
    }
    std::vector<std::vector<ExpertEntry>> tables;
    for (size_t i = 0; i < banks.size(); ++i) {
        for (ExpertEntry& entry : banks[i].table) {
            entry.hash = container::xxh3_64(
                std::span<const std::byte>(banks[i].records).subspan(entry.offset, entry.length));
        }
        manifest.banks[i].table_hash = container::bank_table_hash(banks[i].table);
        manifest.banks[i].bytes = bank_bytes(i).size();
        tables.push_back(banks[i].table);
    }
    manifest.files.clear();
    for (const auto& [name, content] : files) {
        manifest.files.push_back({name, content.size(), container::xxh3_64(content)});
    }
    manifest.fingerprint = container::compute_fingerprint(manifest, tables);
}

std::vector<std::byte> TinyContainer::bank_bytes(size_t bank) const {
    std::vector<std::byte> bytes = banks[bank].records;
    append(bytes, container::bank_table_bytes(manifest.banks[bank].shape, manifest.banks[bank].layer,
                                              banks[bank].table));
    return bytes;
}

Result<void> TinyContainer::write(const std::string& directory) const {
    auto written = container::make_directory(directory);
    if (written) written = write_bytes(container::join_path(directory, container::kTrunkName), trunk);
    for (size_t i = 0; written && i < banks.size(); ++i) {
        written = write_bytes(container::join_path(directory, manifest.banks[i].file), bank_bytes(i));
    }
    for (const auto& [name, content] : files) {
        if (written) written = container::write_file(container::join_path(directory, name), content);
    }
    if (!written) return written;
    return container::write_file(container::join_path(directory, container::kManifestName),
                                 container::manifest_text(manifest));
}

TinyContainer tiny_container() {
    TinyContainer tiny;
    tiny.manifest.config = "{\n  \"model_type\": \"tiny \\\"test\\\"\"\n}\n";
    tiny.manifest.trunk_recipe = "q4";
    tiny.manifest.expert_recipe = "mxfp4";
    const auto add = [&](const char* name, Format format, Layout layout, std::vector<int64_t> shape) {
        size_t count = 1;
        for (const int64_t dimension : shape) count *= static_cast<size_t>(dimension);
        const auto seed = static_cast<uint32_t>(tiny.manifest.tensors.size());
        tiny.add_tensor(name, format, layout, shape, arbitrary_values(count, seed));
    };
    add("embed", Format::bf16, Layout::rows, {8, 40});
    add("layers.0.norm", Format::f32, Layout::rows, {40});
    add("layers.0.self_attn.q_proj", Format::q4, Layout::panels, {24, 40});
    add("layers.0.self_attn.k_absorb", Format::q8, Layout::panels, {2, 17, 40});
    add("layers.1.router", Format::f32, Layout::panels, {3, 40});
    add("lm_head", Format::bf16, Layout::panels, {8, 40});
    tiny.add_bank(1, {3, 64, 32, Format::mxfp4}, 100);
    tiny.add_bank(3, {2, 40, 24, Format::q4}, 200);
    tiny.files = {{"generation_config.json", "{\"eos_token_id\": 1}"},
                  {"tiktoken.model", "IQ== 0\nIg== 1\n"}};
    tiny.seal();
    return tiny;
}

}  // namespace waste::test
