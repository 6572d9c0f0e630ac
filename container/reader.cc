#include "container/reader.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "container/checksum.h"
#include "container/container_state.h"
#include "container/machine.h"
#include "container/text.h"
#include "kernels/format.h"

namespace waste::container {
namespace {

/// Why a directory without a manifest is not a container, as precisely as its names tell.
tl::unexpected<Error> no_manifest(const std::string& directory) {
    if (is_file(directory)) {
        return fail(ErrorKind::invalid, directory, "is a file: name the container's directory");
    }
    if (!is_directory(directory)) return fail(ErrorKind::not_found, directory, "there is no such directory");
    const auto names = list_directory(directory);
    if (!names) return pass(names);
    const bool unfinished = std::any_of(names->begin(), names->end(), [](const std::string& name) {
        return name == kJournalName || name.ends_with(kPartialSuffix);
    });
    if (unfinished) {
        return fail(ErrorKind::invalid, directory, "conversion has not finished: run `waste convert` again");
    }
    const bool release = std::any_of(names->begin(), names->end(),
                                     [](const std::string& name) { return name.ends_with(".safetensors"); });
    if (release) {
        return fail(ErrorKind::invalid, directory,
                    "is a release, not a container: run `waste convert` on it first");
    }
    return fail(ErrorKind::not_found, directory,
                fmt::format("is not a container: it has no {}", kManifestName));
}

Result<void> check_length(const std::string& path, uint64_t found, uint64_t expected) {
    if (found == expected) return {};
    if (found < expected) {
        return fail(ErrorKind::corrupt, path,
                    fmt::format("truncated: {} of {} bytes are missing: copy or convert it again",
                                expected - found, expected));
    }
    return fail(ErrorKind::corrupt, path,
                fmt::format("is {} longer than the manifest says: copy or convert it again",
                            byte_count(found - expected)));
}

Result<MappedFile> map_with_length(const std::string& path, uint64_t expected) {
    auto file = MappedFile::open(path);
    if (!file) return pass(file);
    const auto length = check_length(path, file->bytes().size(), expected);
    if (!length) return pass(length);
    return file;
}

Result<OpenBank> open_bank(const std::string& directory, const BankEntry& entry) {
    const std::string path = join_path(directory, entry.file);
    auto file = map_with_length(path, entry.bytes);
    if (!file) return pass(file);
    auto table = parse_bank_table(file->bytes(), entry, path);
    if (!table) return pass(table);
    file->advise_random();
    auto checked = std::make_unique<std::atomic<bool>[]>(table->size());
    return OpenBank{std::move(*file), std::move(*table), std::move(checked)};
}

/// Whether all files together leave a quarter of the memory to others.
bool fits_in_memory(const Manifest& manifest) {
    const auto machine = read_machine_memory("");
    if (!machine) return false;
    uint64_t left = machine->usable_bytes / 4 * 3;
    const auto take = [&](uint64_t bytes) {
        const bool fits = bytes <= left;
        left -= std::min(bytes, left);
        return fits;
    };
    return take(manifest.trunk_bytes) && std::all_of(manifest.banks.begin(), manifest.banks.end(),
                                                     [&](const BankEntry& bank) { return take(bank.bytes); });
}

Result<std::string> read_carried(const std::string& directory, const CarriedFile& file) {
    const std::string path = join_path(directory, file.name);
    const auto found = file_size(path);
    if (!found) return pass(found);
    const auto length = check_length(path, *found, file.bytes);
    if (!length) return pass(length);
    auto content = read_text_file(path, file.bytes);
    if (!content) return pass(content);
    if (content->size() != file.bytes || xxh3_64(*content) != file.hash) {
        return fail(ErrorKind::corrupt, path, "its checksum does not match the manifest's");
    }
    return content;
}

Result<void> check_fingerprint(const Manifest& manifest, const std::vector<OpenBank>& banks,
                               const std::string& place) {
    std::vector<std::vector<ExpertEntry>> tables;
    tables.reserve(banks.size());
    for (const OpenBank& bank : banks) tables.push_back(bank.table);
    const std::string found = compute_fingerprint(manifest, tables);
    if (found == manifest.fingerprint) return {};
    return fail(ErrorKind::corrupt, place,
                fmt::format("fingerprint {} does not match the content, whose fingerprint is {}",
                            manifest.fingerprint, found));
}

}  // namespace

kernels::Panels TensorView::panels(int64_t batch) const {
    const auto& shape = entry->shape;
    const int64_t rows = shape[shape.size() - 2];
    const int64_t cols = shape[shape.size() - 1];
    const auto offset = static_cast<size_t>(batch * kernels::matrix_bytes(entry->format, rows, cols));
    return {data.data() + offset, rows, cols};
}

std::span<const float> TensorView::floats() const {
    return {reinterpret_cast<const float*>(data.data()), data.size() / sizeof(float)};
}

Container::Container(std::unique_ptr<State> state) : state_(std::move(state)) {}
Container::Container(Container&&) noexcept = default;
Container& Container::operator=(Container&&) noexcept = default;
Container::~Container() = default;

Result<Container> Container::open(const std::string& directory) {
    const std::string manifest_path = join_path(directory, kManifestName);
    if (!is_file(manifest_path)) return no_manifest(directory);
    const auto text = read_text_file(manifest_path, kMaxManifestBytes);
    if (!text) return pass(text);
    auto manifest = parse_manifest(*text, manifest_path);
    if (!manifest) return pass(manifest);

    const std::string trunk_path = join_path(directory, kTrunkName);
    auto trunk = map_with_length(trunk_path, manifest->trunk_bytes);
    if (!trunk) return pass(trunk);
    auto trunk_reader = ReadableFile::open(trunk_path);
    if (!trunk_reader) return pass(trunk_reader);
    auto state = std::make_unique<State>(State{
        directory, std::move(*manifest), std::move(*trunk), std::move(*trunk_reader), {}, false, {}, {}});
    for (const BankEntry& entry : state->manifest.banks) {
        auto bank = open_bank(directory, entry);
        if (!bank) return pass(bank);
        state->banks.push_back(std::move(*bank));
    }
    state->fits_in_memory = fits_in_memory(state->manifest);
    for (const CarriedFile& file : state->manifest.files) {
        auto content = read_carried(directory, file);
        if (!content) return pass(content);
        state->files.push_back(std::move(*content));
    }
    const auto genuine = check_fingerprint(state->manifest, state->banks, manifest_path);
    if (!genuine) return pass(genuine);
    for (size_t i = 0; i < state->manifest.tensors.size(); ++i) {
        state->tensor_at.emplace(state->manifest.tensors[i].name, i);
    }
    return Container(std::move(state));
}

const std::string& Container::directory() const {
    return state_->directory;
}

const Manifest& Container::manifest() const {
    return state_->manifest;
}

Result<TensorView> Container::tensor(std::string_view name) const {
    const auto found = state_->tensor_at.find(name);
    if (found == state_->tensor_at.end()) {
        return fail(ErrorKind::not_found, state_->directory,
                    fmt::format("the container has no tensor {}", printable(name)));
    }
    const TensorEntry& entry = state_->manifest.tensors[found->second];
    return TensorView{&entry, state_->trunk.bytes().subspan(entry.offset, entry.bytes)};
}

Result<void> Container::read_row(const TensorView& tensor, int64_t row, std::span<float> out) const {
    const TensorEntry& entry = *tensor.entry;
    const auto cols = static_cast<uint64_t>(entry.shape.back());
    const uint64_t element_bytes = entry.format == kernels::Format::f32 ? 4 : 2;
    const uint64_t row_bytes = cols * element_bytes;
    if (entry.layout != Layout::rows || row < 0 || static_cast<uint64_t>(row) >= entry.bytes / row_bytes ||
        out.size() != cols) {
        return fail(ErrorKind::invalid, entry.name,
                    fmt::format("has no row {} of {} elements", row, out.size()));
    }
    // bf16 is read into the far half of `out` and widened from the front: element i is written to bytes
    // 4i..4i+3 after it was read from 2(cols + i), which no earlier element has overwritten.
    const auto bytes = std::as_writable_bytes(out).last(row_bytes);
    auto read = state_->trunk_reader.read_at(entry.offset + static_cast<uint64_t>(row) * row_bytes, bytes);
    if (!read || entry.format == kernels::Format::f32) return read;
    for (size_t i = 0; i < cols; ++i) {
        uint16_t half;
        std::memcpy(&half, bytes.data() + 2 * i, sizeof(half));
        out[i] = std::bit_cast<float>(static_cast<uint32_t>(half) << 16);
    }
    return {};
}

Result<ExpertView> Container::expert(size_t bank, int64_t expert) const {
    if (bank >= state_->banks.size() || expert < 0 || expert >= state_->manifest.banks[bank].shape.experts) {
        return fail(ErrorKind::invalid, state_->directory,
                    fmt::format("there is no expert {} in bank {}", expert, bank));
    }
    const OpenBank& open = state_->banks[bank];
    const BankEntry& entry = state_->manifest.banks[bank];
    const auto index = static_cast<size_t>(expert);
    const auto record = open.record(index);
    // Two threads may both find the flag unset; both then compare, and agree.
    if (!open.checked[index].load(std::memory_order_relaxed)) {
        // The mapping is advised as random: without this every page would be a read of its own.
        open.file.advise_soon(open.table[index].offset, open.table[index].length);
        if (xxh3_64(record) != open.table[index].hash) {
            return fail(ErrorKind::corrupt, open.file.path(),
                        fmt::format("layer {} expert {} does not match its checksum", entry.layer, expert));
        }
        open.checked[index].store(true, std::memory_order_relaxed);
    }
    return expert_at(bank, record);
}

const ExpertEntry& Container::expert_entry(size_t bank, int64_t expert) const {
    return state_->banks[bank].table[static_cast<size_t>(expert)];
}

ExpertView Container::expert_at(size_t bank, std::span<const std::byte> record) const {
    const BankShape& shape = state_->manifest.banks[bank].shape;
    return {{record.data(), shape.intermediate_size, shape.input_size},
            {record.data() + shape.up_offset(), shape.intermediate_size, shape.input_size},
            {record.data() + shape.down_offset(), shape.input_size, shape.intermediate_size}};
}

void Container::prefetch(size_t bank, std::span<const int32_t> experts) const {
    if (bank >= state_->banks.size()) return;
    const OpenBank& open = state_->banks[bank];
    for (const int32_t expert : experts) {
        if (expert < 0 || static_cast<size_t>(expert) >= open.table.size()) continue;
        const auto index = static_cast<size_t>(expert);
        // For what is in memory the advice is a walk over its pages that takes longer than reading them.
        if (state_->fits_in_memory && open.checked[index].load(std::memory_order_relaxed)) continue;
        open.file.advise_soon(open.table[index].offset, open.table[index].length);
    }
}

Result<std::string> Container::carried_file(std::string_view name) const {
    const auto& files = state_->manifest.files;
    for (size_t i = 0; i < files.size(); ++i) {
        if (files[i].name == name) return state_->files[i];
    }
    return fail(ErrorKind::not_found, state_->directory,
                fmt::format("the container carries no file {}", printable(name)));
}

bool is_container(const std::string& path) {
    return is_file(join_path(path, kManifestName)) || is_file(join_path(path, kJournalName)) ||
           is_file(join_path(path, std::string(kTrunkName) + std::string(kPartialSuffix)));
}

}  // namespace waste::container
