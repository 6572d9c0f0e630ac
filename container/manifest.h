// manifest.json of a container and the binary table at the end of a bank: the format in code.
// docs/container-format.md is the same in prose; both change together, with kFormatVersion.
//
// Everything parsed here is untrusted. Parsing bounds each field against the others (sizes of matrices
// against their shapes, offsets against file lengths); the reader then holds the lengths against the files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "kernels/format.h"

namespace waste::container {

inline constexpr int kFormatVersion = 1;
inline constexpr uint64_t kAlignment = 4096;  ///< of tensors in trunk.bin and of records in a bank
inline constexpr std::string_view kManifestName = "manifest.json";
inline constexpr std::string_view kTrunkName = "trunk.bin";
inline constexpr std::string_view kConfigName = "config.json";
/// Present while a conversion runs or waits to be resumed.
inline constexpr std::string_view kJournalName = "convert.journal";
inline constexpr uint64_t kMaxManifestBytes = uint64_t{32} << 20;

/// panels: panel.h, rows and cols the last two dimensions, earlier ones a batch of matrices back to back.
/// rows: plain row-major, f32 or bf16.
enum class Layout : uint8_t { panels, rows };

struct TensorEntry {
    std::string name;  ///< e.g. "layers.3.self_attn.q_proj"
    kernels::Format format;
    Layout layout;
    std::vector<int64_t> shape;  ///< logical, 1 to 3 dimensions
    uint64_t offset;             ///< in trunk.bin, a multiple of kAlignment
    uint64_t bytes;
    uint64_t hash;  ///< XXH3-64 of the bytes
};

/// Bytes of a tensor of this format, layout and shape, or an error (overflow, a format the layout cannot
/// hold).
Result<uint64_t> tensor_bytes(kernels::Format format, Layout layout, std::span<const int64_t> shape);

/// The experts of one MoE layer. A record is the gate, up and down matrices back to back:
/// gate and up [intermediate_size][input_size], down [input_size][intermediate_size], in panels of `format`,
/// zero-padded to a multiple of kAlignment.
struct BankShape {
    int64_t experts;
    int64_t input_size;
    int64_t intermediate_size;
    kernels::Format format;

    uint64_t up_offset() const;
    uint64_t down_offset() const;
    uint64_t record_bytes() const;
    /// Of a bank file that holds every record: records, table, footer.
    uint64_t file_bytes() const;
};

/// Refuses shapes whose sizes would overflow; the functions of BankShape need one that passed.
Result<void> check_bank_shape(const BankShape& shape, const std::string& place);

/// Bytes of a bank's table and footer, which end the file.
uint64_t bank_tail_bytes(int64_t experts);

struct BankEntry {
    int64_t layer;  ///< 0-based
    std::string file;
    BankShape shape;
    uint64_t bytes;       ///< of the file: shape.file_bytes(), less where experts share records
    uint64_t table_hash;  ///< XXH3-64 of the table's bytes
};

/// A small file that travels with the model: tokenizer, generation config, chat template.
struct CarriedFile {
    std::string name;
    uint64_t bytes;
    uint64_t hash;
};

struct Manifest {
    std::string config;  ///< the release's config.json, verbatim
    std::string trunk_recipe;
    std::string expert_recipe;
    uint64_t trunk_bytes;
    std::vector<TensorEntry> tensors;  ///< in file order
    std::vector<BankEntry> banks;      ///< in layer order
    std::vector<CarriedFile> files;    ///< in name order
    std::string fingerprint;           ///< 32 hex digits
};

/// `place` names the file in errors.
Result<Manifest> parse_manifest(std::string_view text, const std::string& place);
std::string manifest_text(const Manifest& manifest);

/// One expert's place. `file` indexes the bank's files (0: the bank itself, the only one in version 1);
/// `layout` 0 is a record in panels.
struct ExpertEntry {
    uint32_t file;
    uint32_t layout;
    uint64_t offset;
    uint64_t length;
    uint64_t hash;  ///< XXH3-64 of the record, padding included
};

/// Table and footer as they stand at the end of a bank file, right behind the last record.
std::vector<std::byte> bank_table_bytes(const BankShape& shape, int64_t layer,
                                        std::span<const ExpertEntry> entries);
/// Reads them back from a bank's bytes, checking magic, hashes, shape and that every record lies in the file.
Result<std::vector<ExpertEntry>> parse_bank_table(std::span<const std::byte> file, const BankEntry& bank,
                                                  const std::string& place);
/// The hash a manifest stores for this table.
uint64_t bank_table_hash(std::span<const ExpertEntry> entries);

/// XXH3-128 over version, config, carried files and the sorted (name, format, shape, hash) of all tensors and
/// records. File names, offsets and striping are left out: moving a bank does not change it.
/// `tables[i]` belongs to manifest.banks[i].
std::string compute_fingerprint(const Manifest& manifest, std::span<const std::vector<ExpertEntry>> tables);

}  // namespace waste::container
