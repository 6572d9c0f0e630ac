#include "engine/convert/trunk_writer.h"

#include <algorithm>
#include <optional>

#include "container/checksum.h"
#include "container/file.h"
#include "engine/convert/encode.h"

namespace waste::engine {
namespace {

using container::OutputFile;

/// Indices of the trunk tensors that belong to a layer: they are listed layer by layer.
struct TensorRange {
    size_t begin, end;
};

TensorRange tensors_of(const Source& source, int64_t layer) {
    const auto& specs = source.trunk();
    const auto by_layer = [](const TensorSpec& spec, int64_t value) { return spec.layer < value; };
    const auto begin = std::lower_bound(specs.begin(), specs.end(), layer, by_layer);
    const auto end = std::lower_bound(begin, specs.end(), layer + 1, by_layer);
    return {static_cast<size_t>(begin - specs.begin()), static_cast<size_t>(end - specs.begin())};
}

class TrunkWriter {
  public:
    TrunkWriter(const WriteContext& context, ContainerLayout& layout)
        : context_(context), layout_(layout), path_(context.destination.path(container::kTrunkName)) {}

    Result<void> run();

  private:
    Result<void> open();
    /// The layer's tensor hashes, from the journal or from writing it.
    Result<std::vector<uint64_t>> finish_layer(int64_t layer, TensorRange range);
    Result<std::vector<uint64_t>> write_layer(TensorRange range);

    const WriteContext& context_;
    ContainerLayout& layout_;
    std::string path_;
    bool resumable_ = false;          ///< what the journal says of the trunk holds
    std::optional<OutputFile> file_;  ///< absent where trunk.bin has its final name already
};

Result<void> TrunkWriter::run() {
    if (const auto ok = open(); !ok) return ok;
    for (int64_t layer = -1; layer <= context_.source.config().num_hidden_layers; layer++) {
        const TensorRange range = tensors_of(context_.source, layer);
        const auto hashes = finish_layer(layer, range);
        if (!hashes) return pass(hashes);
        for (size_t i = range.begin; i < range.end; i++) {
            layout_.tensors[i].hash = (*hashes)[i - range.begin];
        }
    }
    return file_ ? file_->commit() : Result<void>{};
}

Result<void> TrunkWriter::open() {
    const bool whole = container::is_file(path_);
    // What the journal says of the trunk holds while the file it speaks of is there.
    const std::string partial = path_ + std::string(container::kPartialSuffix);
    resumable_ = whole || container::file_size(partial).value_or(0) == layout_.trunk_bytes;
    if (whole) return {};
    auto created = OutputFile::create(path_, OutputFile::Existing::resume);
    if (!created) return pass(created);
    file_ = std::move(*created);
    return file_->resize(layout_.trunk_bytes);
}

Result<std::vector<uint64_t>> TrunkWriter::finish_layer(int64_t layer, TensorRange range) {
    const std::vector<uint64_t>* done = resumable_ ? context_.journal.trunk_layer(layer) : nullptr;
    if (done && done->size() == range.end - range.begin) {
        uint64_t bytes = 0;
        for (size_t i = range.begin; i < range.end; i++) bytes += layout_.tensors[i].bytes;
        if (const auto ok = context_.progress.skip(bytes, "trunk"); !ok) return pass(ok);
        return *done;
    }
    if (!file_) {
        return fail(
            ErrorKind::corrupt, context_.destination.directory(),
            "trunk.bin is finished but the journal does not know it; remove the directory and start anew");
    }
    auto hashes = write_layer(range);
    if (!hashes) return hashes;
    if (const auto ok = file_->sync(); !ok) return pass(ok);
    if (const auto ok = context_.journal.finish_trunk_layer(layer, *hashes); !ok) return pass(ok);
    return hashes;
}

Result<std::vector<uint64_t>> TrunkWriter::write_layer(TensorRange range) {
    TrunkEncoder encoder(context_.source, context_.pool);
    std::vector<uint64_t> hashes;
    for (size_t i = range.begin; i < range.end; i++) {
        const container::TensorEntry& entry = layout_.tensors[i];
        container::Hasher hasher;
        const auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
            hasher.update(bytes);
            if (const auto ok = file_->write_at(entry.offset + offset, bytes); !ok) return ok;
            return context_.progress.advance(bytes.size(), entry.name);
        };
        if (const auto ok = encoder.encode(i, entry, sink); !ok) return pass(ok);
        context_.source.checkpoint().release_pages(context_.source.trunk_source(i));
        hashes.push_back(hasher.digest_64());
    }
    return hashes;
}

}  // namespace

Result<void> write_trunk(const WriteContext& context, ContainerLayout& layout) {
    return TrunkWriter(context, layout).run();
}

}  // namespace waste::engine
