#include "engine/synth/synth.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <future>
#include <span>
#include <vector>

#include "container/checksum.h"
#include "container/file.h"
#include "engine/convert/expert_tasks.h"
#include "engine/convert/layout.h"
#include "engine/synth/random.h"
#include "engine/synth/target.h"
#include "engine/synth/weights.h"
#include "engine/tensor_list.h"

namespace waste::engine {
namespace {

using container::BankEntry;
using container::ExpertEntry;
using container::OutputFile;
using container::TensorEntry;

constexpr int64_t kSlabBytes = 16 << 20;

/// What is decided before the first byte is written.
struct SynthJob {
    ModelConfig config;
    std::vector<TensorSpec> specs;
    ContainerLayout layout;
    int64_t stored_experts;

    uint64_t expert_bytes() const {
        uint64_t bytes = 0;
        for (const BankEntry& bank : layout.banks) bytes += bank.bytes;
        return bytes;
    }
};

Result<void> check_options(const SynthOptions& options, const ModelConfig& config) {
    if (!(options.skew >= 0 && options.skew <= kMaxSynthSkew)) {
        return fail(ErrorKind::invalid, "--skew", fmt::format("must lie in 0..{}", kMaxSynthSkew));
    }
    const int64_t stored = options.unique_experts.value_or(1);
    if (stored < 1 || stored > config.num_experts) {
        return fail(ErrorKind::invalid, "--unique-experts",
                    fmt::format("must lie in 1..{}, the experts of a layer", config.num_experts));
    }
    return {};
}

Result<SynthJob> prepare(const SynthOptions& options) {
    auto config = parse_config(options.config_text, options.config_place);
    if (!config) return pass(config);
    if (const auto ok = check_options(options, *config); !ok) return pass(ok);
    SynthJob job{std::move(*config), {}, {}, 0};
    job.specs = trunk_tensors(job.config);
    auto layout = plan_layout(job.config, job.specs, options.trunk, options.experts,
                              [](size_t) { return container::Dtype::bf16; });
    if (!layout) return pass(layout);
    job.layout = std::move(*layout);
    job.stored_experts = options.unique_experts.value_or(job.config.num_experts);
    for (BankEntry& bank : job.layout.banks) {
        bank.bytes = static_cast<uint64_t>(job.stored_experts) * bank.shape.record_bytes() +
                     container::bank_tail_bytes(bank.shape.experts);
    }
    return job;
}

class Synthesis {
  public:
    Synthesis(const SynthOptions& options, const ProgressReport& report, SynthTarget& target, SynthJob job)
        : options_(options),
          target_(target),
          job_(std::move(job)),
          pool_(std::max(1, options.threads)),
          progress_(report, options.destination, job_.layout.trunk_bytes + job_.expert_bytes()) {}

    Result<std::string> run();

  private:
    Result<void> write_trunk();
    Result<void> write_vector(const OutputFile& file, const TensorSpec& spec, TensorEntry& entry);
    Result<void> write_matrix(const OutputFile& file, const TensorSpec& spec, TensorEntry& entry);
    Result<void> write_bank(BankEntry& bank);
    Result<void> write_records(const OutputFile& file, const BankEntry& bank,
                               std::vector<ExpertEntry>& entries);
    /// Syncs and names a bank while the next one is being made.
    Result<void> flush(OutputFile file);
    Result<void> finish_flush() { return flushing_.valid() ? flushing_.get() : Result<void>{}; }
    Result<std::string> write_manifest();

    const SynthOptions& options_;
    SynthTarget& target_;
    SynthJob job_;
    ThreadPool pool_;
    ProgressMeter progress_;
    std::vector<std::byte> slab_;
    std::vector<std::vector<ExpertEntry>> tables_;  ///< as job_.layout.banks
    std::future<Result<void>> flushing_;
};

Result<std::string> Synthesis::run() {
    if (const auto ok = write_trunk(); !ok) return pass(ok);
    for (BankEntry& bank : job_.layout.banks) {
        if (const auto ok = write_bank(bank); !ok) return pass(ok);
    }
    if (const auto ok = finish_flush(); !ok) return pass(ok);
    return write_manifest();
}

Result<void> Synthesis::write_trunk() {
    auto file = OutputFile::create(target_.path(container::kTrunkName), OutputFile::Existing::replace);
    if (!file) return pass(file);
    if (const auto ok = file->resize(job_.layout.trunk_bytes); !ok) return ok;
    for (size_t i = 0; i < job_.specs.size(); i++) {
        TensorEntry& entry = job_.layout.tensors[i];
        const bool vector = job_.specs[i].role == Role::vector;
        const auto ok =
            vector ? write_vector(*file, job_.specs[i], entry) : write_matrix(*file, job_.specs[i], entry);
        if (!ok) return ok;
        // Padding up to the next tensor counts too.
        const uint64_t end =
            i + 1 < job_.specs.size() ? job_.layout.tensors[i + 1].offset : job_.layout.trunk_bytes;
        if (const auto go_on = progress_.advance(end - entry.offset, entry.name); !go_on) return go_on;
    }
    return file->commit();
}

Result<void> Synthesis::write_vector(const OutputFile& file, const TensorSpec& spec, TensorEntry& entry) {
    const std::vector<float> values = synth_vector({job_.config, options_.seed, options_.skew}, spec);
    const auto bytes = std::as_bytes(std::span(values));
    entry.hash = container::xxh3_64(bytes);
    return file.write_at(entry.offset, bytes);
}

/// In slabs of whole panels or rows, made in parallel.
Result<void> Synthesis::write_matrix(const OutputFile& file, const TensorSpec& spec, TensorEntry& entry) {
    const int64_t rows = entry.shape[entry.shape.size() - 2], cols = entry.shape.back();
    const double deviation = synth_deviation(spec);
    const uint64_t stream = stream_of(options_.seed, spec.name);
    const bool panels = entry.layout == container::Layout::panels;
    const RandomPanels matrix(entry.format, rows, cols, deviation, stream);
    const auto total = static_cast<int64_t>(entry.bytes);
    const int64_t piece = panels ? matrix.panel_bytes() : total / rows;
    const int64_t pieces = total / piece, pieces_at_once = std::max<int64_t>(1, kSlabBytes / piece);
    container::Hasher hasher;
    for (int64_t first = 0; first < pieces; first += pieces_at_once) {
        const int64_t count = std::min(pieces_at_once, pieces - first);
        slab_.resize(
            static_cast<size_t>(std::max<int64_t>(static_cast<int64_t>(slab_.size()), count * piece)));
        pool_.run(count, [&](int64_t i) {
            std::byte* out = slab_.data() + i * piece;
            if (panels) {
                matrix.fill(first + i, out);
            } else {
                random_row(entry.format, cols, deviation, stream, first + i, out);
            }
        });
        const auto bytes = std::span<const std::byte>(slab_).first(static_cast<size_t>(count * piece));
        hasher.update(bytes);
        const auto offset = entry.offset + static_cast<uint64_t>(first * piece);
        if (const auto ok = file.write_at(offset, bytes); !ok) return ok;
        if (const auto ok = progress_.advance(0, entry.name); !ok) return ok;
    }
    entry.hash = hasher.digest_64();
    return {};
}

/// Gate, up and down of stored record `index`, padding included.
void fill_record(const BankEntry& bank, uint64_t seed, int64_t index, std::span<std::byte> record) {
    const int64_t input = bank.shape.input_size, inner = bank.shape.intermediate_size;
    const struct {
        const char* name;
        int64_t rows, cols;
        uint64_t offset;
    } matrices[] = {{"gate", inner, input, 0},
                    {"up", inner, input, bank.shape.up_offset()},
                    {"down", input, inner, bank.shape.down_offset()}};
    uint64_t end = 0;
    for (const auto& m : matrices) {
        const std::string name = fmt::format("layers.{}.experts.{}.{}", bank.layer, index, m.name);
        const double deviation = 1.0 / std::sqrt(static_cast<double>(m.cols));
        const RandomPanels panels(bank.shape.format, m.rows, m.cols, deviation, stream_of(seed, name));
        std::byte* out = record.data() + m.offset;
        for (int64_t panel = 0; panel < kernels::panel_count(m.rows); panel++, out += panels.panel_bytes()) {
            panels.fill(panel, out);
        }
        end = static_cast<uint64_t>(out - record.data());
    }
    std::memset(record.data() + end, 0, record.size() - end);
}

Result<void> Synthesis::write_records(const OutputFile& file, const BankEntry& bank,
                                      std::vector<ExpertEntry>& entries) {
    const uint64_t record_bytes = bank.shape.record_bytes();
    const std::string what = fmt::format("experts of layer {}", bank.layer);
    const auto write = [&](int64_t index, ExpertBuffers& buffers) -> Result<void> {
        buffers.record.resize(record_bytes);
        fill_record(bank, options_.seed, index, buffers.record);
        const uint64_t offset = static_cast<uint64_t>(index) * record_bytes;
        if (const auto ok = file.write_at(offset, buffers.record); !ok) return ok;
        const ExpertEntry entry{0, 0, offset, record_bytes, container::xxh3_64(buffers.record)};
        for (int64_t e = index; e < bank.shape.experts; e += job_.stored_experts) {
            entries[static_cast<size_t>(e)] = entry;
        }
        return progress_.advance(record_bytes, what);
    };
    return for_each_expert(pool_, job_.stored_experts, record_bytes, write);
}

Result<void> Synthesis::write_bank(BankEntry& bank) {
    auto file = OutputFile::create(target_.path(bank.file), OutputFile::Existing::replace);
    if (!file) return pass(file);
    std::vector<ExpertEntry> entries(static_cast<size_t>(bank.shape.experts));
    if (const auto ok = write_records(*file, bank, entries); !ok) return ok;
    const auto table = container::bank_table_bytes(bank.shape, bank.layer, entries);
    if (const auto ok = file->write_at(bank.bytes - table.size(), table); !ok) return ok;
    bank.table_hash = container::bank_table_hash(entries);
    tables_.push_back(std::move(entries));
    if (const auto ok = flush(std::move(*file)); !ok) return ok;
    return progress_.advance(table.size(), bank.file);
}

Result<void> Synthesis::flush(OutputFile file) {
    if (const auto ok = finish_flush(); !ok) return ok;
    flushing_ = std::async([file = std::move(file)]() mutable { return file.commit(); });
    return {};
}

Result<std::string> Synthesis::write_manifest() {
    container::Manifest manifest{};
    manifest.config = options_.config_text;
    manifest.trunk_recipe = fmt::format("{}, seed {}, skew {}{}", trunk_recipe_name(options_.trunk),
                                        options_.seed, options_.skew, kSynthMark);
    manifest.expert_recipe = fmt::format("{}, {} of {} stored{}", kernels::format_info(options_.experts).name,
                                         job_.stored_experts, job_.config.num_experts, kSynthMark);
    manifest.trunk_bytes = job_.layout.trunk_bytes;
    manifest.tensors = job_.layout.tensors;
    manifest.banks = job_.layout.banks;
    manifest.fingerprint = container::compute_fingerprint(manifest, tables_);
    const auto ok =
        container::write_file(target_.path(container::kManifestName), container::manifest_text(manifest));
    if (!ok) return pass(ok);
    if (const auto finished = target_.finish(); !finished) return pass(finished);
    return manifest.fingerprint;
}

}  // namespace

Result<std::string> synthesize(const SynthOptions& options, const SynthCallbacks& callbacks) {
    auto job = prepare(options);
    if (!job) return pass(job);
    SynthTarget target(options.destination);
    if (const auto ok = target.check_usable(options.replace); !ok) return pass(ok);
    const uint64_t trunk_bytes = job->layout.trunk_bytes, expert_bytes = job->expert_bytes();
    if (callbacks.on_start) {
        callbacks.on_start(
            {job->config, trunk_bytes, expert_bytes, job->stored_experts, target.free_bytes()});
    }
    if (const auto ok = target.check_space(trunk_bytes + expert_bytes); !ok) return pass(ok);
    if (const auto ok = target.begin(); !ok) return pass(ok);
    auto written = Synthesis(options, callbacks.on_progress, target, std::move(*job)).run();
    if (!written && written.error().kind == ErrorKind::interrupted) {
        return fail(ErrorKind::interrupted, options.destination,
                    "stopped; what was written is removed again");
    }
    return written;
}

}  // namespace waste::engine
