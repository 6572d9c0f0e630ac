#include "container/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "container/checksum.h"
#include "container/reader.h"
#include "container/safetensors_header.h"
#include "container/text.h"

namespace waste::container {
namespace {

constexpr std::string_view kIndexName = "model.safetensors.index.json";
constexpr std::string_view kSingleName = "model.safetensors";
constexpr uint64_t kMaxIndexBytes = uint64_t{256} << 20;

/// Why a directory without index and model.safetensors is not a release, as precisely as its names tell.
tl::unexpected<Error> no_model(const std::string& directory) {
    if (is_container(directory)) {
        return fail(ErrorKind::invalid, directory, "is a converted container, not a release");
    }
    const auto names = list_directory(directory);
    if (!names) return pass(names);
    size_t shards = 0;
    std::string foreign;
    for (const std::string& name : *names) {
        if (name.ends_with(kSafetensorsSuffix)) ++shards;
        for (const std::string_view suffix : {".bin", ".gguf", ".pt", ".pth"}) {
            if (foreign.empty() && name.ends_with(suffix)) foreign = name;
        }
    }
    if (shards > 0) {
        return fail(ErrorKind::not_found, directory,
                    fmt::format("has {} .safetensors files but neither {} nor {}: download the index too",
                                shards, kIndexName, kSingleName));
    }
    if (!foreign.empty()) {
        return fail(ErrorKind::unsupported, directory,
                    fmt::format("holds {}, and only .safetensors weights are supported", printable(foreign)));
    }
    return fail(ErrorKind::not_found, directory,
                fmt::format("holds no model: a release has config.json and either {} with its shards or {}",
                            kIndexName, kSingleName));
}

Result<void> check_directory(const std::string& directory) {
    if (is_directory(directory)) return {};
    if (is_file(directory)) {
        return fail(ErrorKind::invalid, directory, "is a file: name the release's directory");
    }
    return fail(ErrorKind::not_found, directory, "there is no such directory");
}

Result<void> check_shards_present(const std::string& directory, const std::vector<std::string>& shards) {
    size_t missing = 0;
    std::string first;
    for (const std::string& shard : shards) {
        if (is_file(join_path(directory, shard))) continue;
        if (missing++ == 0) first = shard;
    }
    if (missing == 0) return {};
    return fail(ErrorKind::not_found, directory,
                fmt::format("{} of {} shards missing, the first is {}: download what is missing", missing,
                            shards.size(), printable(first)));
}

}  // namespace

struct Checkpoint::Record {
    uint64_t name_begin;   ///< in names_
    uint64_t shape_begin;  ///< in shapes_
    uint64_t data_begin;   ///< in the file
    uint32_t name_length;
    uint32_t file;  ///< in files_
    Dtype dtype;
    uint8_t rank;
};

int64_t SourceTensor::elements() const {
    return static_cast<int64_t>(data.size()) / dtype_bytes(dtype);
}

std::string SourceTensor::shape_text() const {
    return fmt::format("[{}]", fmt::join(shape.begin(), shape.begin() + rank, ", "));
}

Checkpoint::Checkpoint() = default;
Checkpoint::Checkpoint(Checkpoint&&) noexcept = default;
Checkpoint& Checkpoint::operator=(Checkpoint&&) noexcept = default;
Checkpoint::~Checkpoint() = default;

Result<Checkpoint> Checkpoint::open(const std::string& directory) {
    const auto usable = check_directory(directory);
    if (!usable) return pass(usable);
    Checkpoint checkpoint;
    checkpoint.directory_ = directory;
    WeightMap map;
    const std::string index_path = join_path(directory, kIndexName);
    if (is_file(index_path)) {
        const auto text = read_text_file(index_path, kMaxIndexBytes);
        if (!text) return pass(text);
        auto parsed = parse_weight_map(*text, index_path);
        if (!parsed) return pass(parsed);
        map = std::move(*parsed);
        const auto present = check_shards_present(directory, map.shards);
        if (!present) return pass(present);
    } else if (is_file(join_path(directory, kSingleName))) {
        map.shards.emplace_back(kSingleName);
    } else {
        return no_model(directory);
    }
    for (const std::string& shard : map.shards) {
        const auto added = checkpoint.add_file(shard);
        if (!added) return pass(added);
    }
    const auto sorted = checkpoint.sort_records();
    if (!sorted) return pass(sorted);
    const auto agrees = checkpoint.check_against(map);
    if (!agrees) return pass(agrees);
    return checkpoint;
}

Result<void> Checkpoint::add_file(const std::string& file_name) {
    const std::string path = join_path(directory_, file_name);
    auto file = MappedFile::open(path);
    if (!file) return pass(file);
    const auto tensors = parse_safetensors_header(file->bytes(), path);
    if (!tensors) return pass(tensors);
    for (const HeaderTensor& tensor : *tensors) {
        records_.push_back({names_.size(), shapes_.size(), tensor.begin,
                            static_cast<uint32_t>(tensor.name.size()), static_cast<uint32_t>(files_.size()),
                            tensor.dtype, static_cast<uint8_t>(tensor.shape.size())});
        names_ += tensor.name;
        shapes_.insert(shapes_.end(), tensor.shape.begin(), tensor.shape.end());
    }
    Hasher hasher;
    hasher.update_u64(identity_);
    hasher.update(file_name);
    hasher.update_u64(file->bytes().size());
    hasher.update(file->bytes().first(header_bytes(file->bytes())));
    identity_ = hasher.digest_64();
    file->advise_done(0, header_bytes(file->bytes()));
    files_.push_back(std::move(*file));
    return {};
}

Result<void> Checkpoint::sort_records() {
    names_.shrink_to_fit();
    shapes_.shrink_to_fit();
    records_.shrink_to_fit();
    std::sort(records_.begin(), records_.end(),
              [this](const Record& a, const Record& b) { return name_of(a) < name_of(b); });
    const auto twice =
        std::adjacent_find(records_.begin(), records_.end(),
                           [this](const Record& a, const Record& b) { return name_of(a) == name_of(b); });
    if (twice == records_.end()) return {};
    return fail(
        ErrorKind::corrupt, directory_,
        fmt::format("tensor {} is in two shards, {} and {}", printable(name_of(*twice)),
                    base_name(files_[twice->file].path()), base_name(files_[(twice + 1)->file].path())));
}

Result<void> Checkpoint::check_against(const WeightMap& map) const {
    // Both are in name order, and shards were added in the order of map.shards.
    auto record = records_.begin();
    for (const WeightMap::Entry& entry : map.entries) {
        const std::string_view name = map.name(entry);
        while (record != records_.end() && name_of(*record) < name) ++record;
        if (record == records_.end() || name_of(*record) != name || record->file != entry.shard) {
            return fail(
                ErrorKind::corrupt, directory_,
                fmt::format("the index puts tensor {} into {}, which does not hold it: index and shards "
                            "are not of one release",
                            printable(name), printable(map.shards[entry.shard])));
        }
    }
    return {};
}

std::string_view Checkpoint::name_of(const Record& record) const {
    return std::string_view(names_).substr(record.name_begin, record.name_length);
}

size_t Checkpoint::size() const {
    return records_.size();
}

std::string_view Checkpoint::name(size_t i) const {
    return name_of(records_[i]);
}

SourceTensor Checkpoint::tensor(size_t i) const {
    const Record& record = records_[i];
    SourceTensor tensor{record.dtype, record.rank, {}, {}};
    auto bytes = static_cast<uint64_t>(dtype_bytes(record.dtype));
    for (size_t d = 0; d < record.rank; ++d) {
        tensor.shape[d] = shapes_[record.shape_begin + d];
        bytes *= static_cast<uint64_t>(tensor.shape[d]);
    }
    tensor.data = files_[record.file].bytes().subspan(record.data_begin, bytes);
    return tensor;
}

bool Checkpoint::contains(std::string_view name) const {
    return find(name).has_value();
}

Result<size_t> Checkpoint::find(std::string_view name) const {
    const auto place = std::lower_bound(
        records_.begin(), records_.end(), name,
        [this](const Record& record, std::string_view wanted) { return name_of(record) < wanted; });
    if (place == records_.end() || name_of(*place) != name) {
        return fail(ErrorKind::not_found, directory_, fmt::format("has no tensor {}", printable(name)));
    }
    return static_cast<size_t>(place - records_.begin());
}

Result<SourceTensor> Checkpoint::get(std::string_view name) const {
    const auto i = find(name);
    if (!i) return pass(i);
    return tensor(*i);
}

const std::string& Checkpoint::file_of(size_t i) const {
    return files_[records_[i].file].path();
}

void Checkpoint::release_pages(size_t i) const {
    files_[records_[i].file].advise_done(records_[i].data_begin, tensor(i).data.size());
}

uint64_t Checkpoint::data_bytes() const {
    uint64_t total = 0;
    for (size_t i = 0; i < size(); ++i) total += tensor(i).data.size();
    return total;
}

}  // namespace waste::container
