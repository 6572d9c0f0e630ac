#include "engine/convert/proof.h"

#include <fmt/format.h>

#include <algorithm>
#include <mutex>
#include <numeric>
#include <optional>
#include <random>

#include "engine/convert/carried.h"
#include "engine/convert/encode.h"
#include "engine/convert/expert_tasks.h"
#include "engine/convert/layout.h"
#include "engine/convert/recipe.h"
#include "engine/convert/source.h"

namespace waste::engine {
namespace {

using container::Container;
using container::Damage;
using container::TensorEntry;

/// `count` of `from`, in order. Written out because the standard's distributions differ between libraries.
std::vector<int64_t> sample(std::vector<int64_t> from, int64_t count, std::mt19937_64& random) {
    const size_t wanted = std::min(from.size(), static_cast<size_t>(count));
    for (size_t i = 0; i < wanted; i++) {
        std::swap(from[i], from[i + static_cast<size_t>(random() % (from.size() - i))]);
    }
    from.resize(wanted);
    std::sort(from.begin(), from.end());
    return from;
}

/// Where two equally long runs of bytes first differ; `offset` is that of the run.
std::optional<Damage> difference(const std::string& what, uint64_t offset, std::span<const std::byte> stored,
                                 std::span<const std::byte> encoded) {
    const auto at = std::mismatch(stored.begin(), stored.end(), encoded.begin(), encoded.end()).first;
    if (at == stored.end()) return std::nullopt;
    const uint64_t position = offset + static_cast<uint64_t>(at - stored.begin());
    return Damage{what, fmt::format("differs from what the release encodes to, first at byte {}", position)};
}

struct ExpertSample {
    size_t bank;
    int64_t expert;
    std::optional<Damage> damage;
};

class Proof {
  public:
    Proof(const Container& container, const ProofOptions& options, const Source& source,
          const std::function<bool(uint64_t, uint64_t)>& progress)
        : container_(container),
          options_(options),
          source_(source),
          progress_(progress),
          pool_(std::max(1, options.threads)) {}

    Result<ProofReport> run();

  private:
    Result<void> check_layout();
    Result<void> check_carried();
    void choose();
    Result<void> compare_tensor(size_t index);
    Result<void> compare_experts();
    Result<void> compare_expert(ExpertSample& chosen, ExpertBuffers& buffers);
    Result<void> advance(uint64_t bytes);
    const container::Manifest& manifest() const { return container_.manifest(); }

    const Container& container_;
    const ProofOptions& options_;
    const Source& source_;
    const std::function<bool(uint64_t, uint64_t)>& progress_;
    ThreadPool pool_;
    std::vector<size_t> tensors_;
    std::vector<ExpertSample> experts_;
    uint64_t total_ = 0;
    std::mutex mutex_;
    ProofReport report_;  ///< its `bytes` are guarded by mutex_ while experts are compared
};

/// The container must be laid out as a conversion of this release would be.
Result<void> Proof::check_layout() {
    if (manifest().config != source_.config_text()) {
        return fail(ErrorKind::invalid, options_.source,
                    "its config.json is not the one the container was made from; this is another release");
    }
    const auto trunk = trunk_recipe_from_name(manifest().trunk_recipe);
    const auto experts = kernels::format_from_name(manifest().expert_recipe);
    if (!trunk || !experts) {
        return fail(ErrorKind::unsupported, container_.directory(),
                    fmt::format("its recipe ({}, {}) is not one that `waste convert` knows",
                                manifest().trunk_recipe, manifest().expert_recipe));
    }
    const auto released = [this](size_t i) {
        return source_.checkpoint().tensor(source_.trunk_source(i)).dtype;
    };
    const auto layout = plan_layout(source_.config(), source_.trunk(), *trunk, *experts, released);
    if (!layout) return pass(layout);
    if (same_layout(*layout, manifest())) return {};
    return fail(ErrorKind::invalid, container_.directory(),
                "its tensors or banks are not those that this version of `waste convert` would make of the "
                "release");
}

Result<void> Proof::check_carried() {
    const auto files = read_carried_files(options_.source);
    if (!files) return pass(files);
    for (const container::CarriedFile& stored : manifest().files) {
        const CarriedContent* file = find_carried(*files, stored.name);
        if (!file) {
            report_.differences.push_back({"file " + stored.name, "is not in the release"});
        } else if (describe(*file).hash != stored.hash) {
            report_.differences.push_back({"file " + stored.name, "differs from the release's"});
        }
    }
    return {};
}

/// A few layers of each kind (KDA or MLA, experts or none), a few experts of each bank.
void Proof::choose() {
    const ModelConfig& config = source_.config();
    std::mt19937_64 random(options_.seed);
    const int64_t count = options_.all ? INT64_MAX : options_.samples;
    for (const auto& [kda, moe] : {std::pair(true, false), {true, true}, {false, false}, {false, true}}) {
        std::vector<int64_t> layers;
        for (int64_t layer = 0; layer < config.num_hidden_layers; layer++) {
            const bool is_kda = config.kda_layer[static_cast<size_t>(layer)];
            if (is_kda == kda && config.is_moe(layer) == moe) layers.push_back(layer);
        }
        const auto chosen = sample(std::move(layers), count, random);
        report_.layers.insert(report_.layers.end(), chosen.begin(), chosen.end());
    }
    std::sort(report_.layers.begin(), report_.layers.end());
    for (size_t i = 0; i < source_.trunk().size(); i++) {
        const int64_t layer = source_.trunk()[i].layer;
        const bool inside = layer >= 0 && layer < config.num_hidden_layers;
        if (inside && !std::binary_search(report_.layers.begin(), report_.layers.end(), layer)) continue;
        tensors_.push_back(i);
        total_ += manifest().tensors[i].bytes;
    }
    for (size_t bank = 0; bank < manifest().banks.size(); bank++) {
        const container::BankShape& shape = manifest().banks[bank].shape;
        std::vector<int64_t> ids(static_cast<size_t>(shape.experts));
        std::iota(ids.begin(), ids.end(), 0);
        for (const int64_t expert : sample(std::move(ids), count, random)) {
            experts_.push_back({bank, expert, std::nullopt});
            total_ += shape.record_bytes();
        }
    }
}

Result<void> Proof::advance(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    report_.bytes += bytes;
    if (progress_ && !progress_(report_.bytes, total_)) {
        return fail(ErrorKind::interrupted, {}, "stopped before everything was compared");
    }
    return {};
}

Result<void> Proof::compare_tensor(size_t index) {
    const TensorEntry& entry = manifest().tensors[index];
    const auto stored = container_.tensor(entry.name);
    if (!stored) return pass(stored);
    TrunkEncoder encoder(source_, pool_);
    std::optional<Damage> damage;  // a tensor arrives in slabs; its first difference says enough
    const auto ok = encoder.encode(index, entry, [&](uint64_t offset, std::span<const std::byte> bytes) {
        if (!damage) {
            damage =
                difference("tensor " + entry.name, offset, stored->data.subspan(offset, bytes.size()), bytes);
        }
        return advance(bytes.size());
    });
    if (damage) report_.differences.push_back(*damage);
    source_.checkpoint().release_pages(source_.trunk_source(index));
    report_.tensors++;
    return ok;
}

Result<void> Proof::compare_expert(ExpertSample& chosen, ExpertBuffers& buffers) {
    const container::BankEntry& bank = manifest().banks[chosen.bank];
    const std::string what = fmt::format("layer {} expert {}", bank.layer, chosen.expert);
    std::vector<std::byte>& record = buffers.record;
    record.resize(bank.shape.record_bytes());
    const auto encoded = encode_expert(source_, bank.layer, chosen.expert, bank.shape, buffers.rows, record);
    if (!encoded) return encoded;
    const auto stored = container_.expert(chosen.bank, chosen.expert);
    chosen.damage = stored ? difference(what, 0, {stored->gate.data, record.size()}, record)
                           : Damage{what, stored.error().message};
    return advance(record.size());
}

Result<void> Proof::compare_experts() {
    uint64_t largest = 0;
    for (const container::BankEntry& bank : manifest().banks) {
        largest = std::max(largest, bank.shape.record_bytes());
    }
    const auto compared = for_each_expert(
        pool_, static_cast<int64_t>(experts_.size()), largest, [&](int64_t i, ExpertBuffers& buffers) {
            return compare_expert(experts_[static_cast<size_t>(i)], buffers);
        });
    if (!compared) return compared;
    report_.experts = static_cast<int64_t>(experts_.size());
    for (const ExpertSample& sample : experts_) {
        if (sample.damage) report_.differences.push_back(*sample.damage);
    }
    return {};
}

Result<ProofReport> Proof::run() {
    if (const auto ok = check_layout(); !ok) return pass(ok);
    if (const auto ok = check_carried(); !ok) return pass(ok);
    choose();
    for (const size_t index : tensors_) {
        if (const auto ok = compare_tensor(index); !ok) return pass(ok);
    }
    if (const auto ok = compare_experts(); !ok) return pass(ok);
    return std::move(report_);
}

}  // namespace

Result<ProofReport> prove_conversion(const Container& container, const ProofOptions& options,
                                     const std::function<bool(uint64_t, uint64_t)>& progress) {
    const auto source = Source::open(options.source);
    if (!source) return pass(source);
    return Proof(container, options, *source, progress).run();
}

}  // namespace waste::engine
