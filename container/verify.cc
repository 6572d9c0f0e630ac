#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <utility>

#include "container/checksum.h"
#include "container/container_state.h"

namespace waste::container {
namespace {

/// Walks files from front to back, reports progress and gives pages back behind itself.
class Walk {
  public:
    Walk(const std::function<bool(uint64_t, uint64_t)>& progress, uint64_t total)
        : progress_(progress), total_(total) {}

    /// Tells about `bytes` more; an error once the caller asked to stop.
    Result<void> advance(uint64_t bytes) {
        done_ += bytes;
        if (progress_ && !progress_(done_, total_)) {
            return fail(ErrorKind::interrupted, {}, "stopped before everything was read");
        }
        return {};
    }

    /// Hash of a range, read in pieces that are told about one by one.
    Result<uint64_t> hash(const MappedFile& file, uint64_t offset, uint64_t length) {
        constexpr uint64_t kPiece = uint64_t{16} << 20;
        Hasher hasher;
        for (uint64_t at = offset; at < offset + length; at += kPiece) {
            const uint64_t piece = std::min(kPiece, offset + length - at);
            file.advise_soon(at, piece);
            hasher.update(file.bytes().subspan(at, piece));
            file.advise_done(at, piece);
            const auto advanced = advance(piece);
            if (!advanced) return pass(advanced);
        }
        return hasher.digest_64();
    }

  private:
    const std::function<bool(uint64_t, uint64_t)>& progress_;
    uint64_t total_;
    uint64_t done_ = 0;
};

constexpr std::string_view kMismatch = "does not match its checksum";

/// The bytes between two tensors.
Result<void> check_padding(const MappedFile& trunk, uint64_t begin, uint64_t end, Walk& walk,
                           std::vector<Damage>& damage) {
    const auto padding = trunk.bytes().subspan(begin, end - begin);
    const auto stray =
        std::find_if(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{}; });
    if (stray != padding.end()) {
        const auto at = begin + static_cast<uint64_t>(stray - padding.begin());
        damage.push_back({fmt::format("file {}", kTrunkName),
                          fmt::format("byte {} lies between tensors and is not zero", at)});
    }
    return walk.advance(end - begin);
}

Result<void> verify_trunk(const MappedFile& trunk, const Manifest& manifest, Walk& walk,
                          std::vector<Damage>& damage) {
    uint64_t end = 0;
    for (const TensorEntry& tensor : manifest.tensors) {
        const auto padded = check_padding(trunk, end, tensor.offset, walk, damage);
        if (!padded) return padded;
        const auto hash = walk.hash(trunk, tensor.offset, tensor.bytes);
        if (!hash) return pass(hash);
        if (*hash != tensor.hash) damage.push_back({"tensor " + tensor.name, std::string(kMismatch)});
        end = tensor.offset + tensor.bytes;
    }
    return check_padding(trunk, end, manifest.trunk_bytes, walk, damage);
}

Result<void> verify_bank(const OpenBank& bank, const BankEntry& entry, Walk& walk,
                         std::vector<Damage>& damage) {
    // By offset and length, as experts may share a record.
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> known;
    for (size_t i = 0; i < bank.table.size(); ++i) {
        const std::pair<uint64_t, uint64_t> place(bank.table[i].offset, bank.table[i].length);
        if (const auto before = known.find(place); before == known.end()) {
            const auto hash = walk.hash(bank.file, place.first, place.second);
            if (!hash) return pass(hash);
            known[place] = *hash;
        } else if (const auto advanced = walk.advance(place.second); !advanced) {
            return advanced;
        }
        if (known[place] != bank.table[i].hash) {
            damage.push_back({fmt::format("layer {} expert {}", entry.layer, i), std::string(kMismatch)});
        }
    }
    const auto table = parse_bank_table(bank.file.bytes(), entry, bank.file.path());
    if (!table) damage.push_back({"file " + entry.file, table.error().message});
    return walk.advance(bank_tail_bytes(entry.shape.experts));
}

Result<void> verify_file(const std::string& directory, const CarriedFile& file, Walk& walk,
                         std::vector<Damage>& damage) {
    const auto content = read_text_file(join_path(directory, file.name), file.bytes);
    if (!content) {
        damage.push_back({"file " + file.name, content.error().message});
    } else if (content->size() != file.bytes || xxh3_64(*content) != file.hash) {
        damage.push_back({"file " + file.name, std::string(kMismatch)});
    }
    return walk.advance(file.bytes);
}

/// What verify tells about: a record that experts share is read once and counts for each of them.
uint64_t bytes_to_walk(const Manifest& manifest) {
    uint64_t total = manifest.trunk_bytes;
    for (const BankEntry& bank : manifest.banks) total += bank.shape.file_bytes();
    for (const CarriedFile& file : manifest.files) total += file.bytes;
    return total;
}

}  // namespace

Result<std::vector<Damage>> Container::verify(const std::function<bool(uint64_t, uint64_t)>& progress) const {
    const Manifest& manifest = state_->manifest;
    Walk walk(progress, bytes_to_walk(manifest));
    std::vector<Damage> damage;
    auto walked = verify_trunk(state_->trunk, manifest, walk, damage);
    for (size_t i = 0; walked && i < state_->banks.size(); ++i) {
        walked = verify_bank(state_->banks[i], manifest.banks[i], walk, damage);
    }
    for (size_t i = 0; walked && i < manifest.files.size(); ++i) {
        walked = verify_file(state_->directory, manifest.files[i], walk, damage);
    }
    if (!walked) return pass(walked);
    return damage;
}

}  // namespace waste::container
