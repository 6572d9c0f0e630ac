#include "engine/convert/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>

#include "container/checksum.h"
#include "container/file.h"
#include "container/reader.h"
#include "engine/convert/carried.h"
#include "engine/convert/encode.h"
#include "engine/convert/journal.h"
#include "engine/convert/layout.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {
namespace {

using container::join_path;
using container::OutputFile;

// What the expert records in flight may occupy together, unless one record alone is larger.
constexpr uint64_t kRecordBudgetBytes = 128 << 20;
// Room beyond the container's own bytes: manifest, carried files, file system overhead.
constexpr uint64_t kSpareBytes = 16 << 20;

class Conversion {
  public:
    Conversion(const ConvertOptions& options, const ConvertCallbacks& callbacks, Source source,
               kernels::Format expert_format, ContainerLayout layout, std::vector<CarriedContent> carried,
               std::vector<std::string> notes)
        : options_(options),
          callbacks_(callbacks),
          source_(std::move(source)),
          expert_format_(expert_format),
          layout_(std::move(layout)),
          carried_(std::move(carried)),
          notes_(std::move(notes)),
          pool_(std::max(1, options.threads)) {}

    Result<std::string> run();

  private:
    Result<bool> already_finished() const;
    Result<void> check_destination() const;
    uint64_t present_bytes(std::string_view name) const;
    Result<void> check_space(const ConvertSummary& summary) const;
    ConvertSummary summary(bool finished) const;
    std::string identity() const;
    std::string path(std::string_view name) const { return join_path(options_.destination, name); }

    Result<void> write_trunk(Journal& journal);
    Result<void> write_trunk_layer(int64_t layer, const OutputFile& file, std::vector<uint64_t>& hashes);
    Result<void> write_bank(container::BankEntry& bank, Journal& journal);
    Result<void> write_records(const container::BankEntry& bank, const OutputFile& file,
                               std::vector<container::ExpertEntry>& entries);
    Result<bool> reuse_bank(const container::BankEntry& bank) const;
    Result<std::string> write_manifest();

    Result<void> advance(uint64_t bytes, bool skipped, const std::string& what);
    std::pair<size_t, size_t> tensors_of(int64_t layer) const;

    const ConvertOptions& options_;
    const ConvertCallbacks& callbacks_;
    Source source_;
    kernels::Format expert_format_;
    ContainerLayout layout_;
    std::vector<CarriedContent> carried_;
    std::vector<std::string> notes_;
    ThreadPool pool_;
    std::mutex progress_mutex_;
    ConvertProgress progress_{};  ///< guarded by progress_mutex_ while records are written
};

std::string Conversion::identity() const {
    container::Hasher hasher;
    hasher.update_u64(container::kFormatVersion);
    hasher.update(source_.config_text());
    hasher.update_u64(source_.checkpoint().identity());
    hasher.update(trunk_recipe_name(options_.trunk));
    hasher.update(kernels::format_info(expert_format_).name);
    for (const CarriedContent& file : carried_) hasher.update_u64(container::xxh3_64(file.content));
    return hasher.digest_128_hex();
}

ConvertSummary Conversion::summary(bool finished) const {
    const ModelConfig& config = source_.config();
    ConvertSummary out{};
    out.family = config.family;
    out.layers = config.num_hidden_layers;
    out.moe_layers = config.moe_layer_count();
    out.experts_per_layer = config.num_experts;
    out.source_tensors = source_.checkpoint().size();
    out.source_bytes = source_.checkpoint().data_bytes();
    out.trunk_bytes = layout_.trunk_bytes;
    out.expert_bytes = layout_.expert_bytes();
    out.expert_format = expert_format_;
    out.free_bytes = container::free_space(options_.destination).value_or(0);
    out.has_tokenizer = find_carried(carried_, "tiktoken.model") != nullptr;
    out.ignored = source_.ignored();
    out.notes = notes_;
    out.resumed = container::is_file(path(kJournalName));
    out.finished = finished;
    return out;
}

/// True for a finished container of this config, recipe and these small files; an error for anything else
/// that has a manifest.
Result<bool> Conversion::already_finished() const {
    if (!container::is_file(path(container::kManifestName))) return false;
    const auto existing = container::Container::open(options_.destination);
    if (!existing) return pass(existing);
    const container::Manifest& manifest = existing->manifest();
    const auto same_file = [](const container::CarriedFile& a, const CarriedContent& b) {
        return a.name == b.name && a.hash == container::xxh3_64(b.content);
    };
    if (manifest.config == source_.config_text() &&
        std::equal(manifest.files.begin(), manifest.files.end(), carried_.begin(), carried_.end(),
                   same_file) &&
        manifest.trunk_recipe == trunk_recipe_name(options_.trunk) &&
        manifest.expert_recipe == kernels::format_info(expert_format_).name) {
        return true;
    }
    return fail(
        ErrorKind::invalid, options_.destination,
        "is a finished container of another model or recipe; remove it or choose another destination");
}

Result<void> Conversion::check_destination() const {
    if (!container::is_directory(options_.destination)) return {};
    if (container::is_file(path(kJournalName))) return {};
    const auto names = container::list_directory(options_.destination);
    if (!names) return pass(names);
    if (names->empty()) return {};
    return fail(ErrorKind::invalid, options_.destination,
                "is not empty and holds no unfinished conversion; choose another destination");
}

/// Bytes that `name` holds already, finished or not. Hopeful for an unfinished trunk, which has its full
/// length before its bytes: a run that goes on must not be refused for space it has taken itself.
uint64_t Conversion::present_bytes(std::string_view name) const {
    const std::string file = path(name);
    return container::is_file(file)
               ? container::file_size(file).value_or(0)
               : container::file_size(file + std::string(container::kPartialSuffix)).value_or(0);
}

Result<void> Conversion::check_space(const ConvertSummary& summary) const {
    uint64_t present = present_bytes(container::kTrunkName);
    for (const container::BankEntry& bank : layout_.banks) present += present_bytes(bank.file);
    const uint64_t total = summary.trunk_bytes + summary.expert_bytes;
    const uint64_t needed = total - std::min(total, present) + kSpareBytes;
    if (summary.free_bytes >= needed) return {};
    return fail(
        ErrorKind::capacity, options_.destination,
        fmt::format("the conversion needs {:.2f} GiB more and the file system has {:.2f} GiB free; free some "
                    "space or choose another destination",
                    static_cast<double>(needed) / (1 << 30),
                    static_cast<double>(summary.free_bytes) / (1 << 30)));
}

Result<void> Conversion::advance(uint64_t bytes, bool skipped, const std::string& what) {
    progress_.bytes_done += bytes;
    if (skipped) progress_.bytes_skipped += bytes;
    progress_.what = what;
    if (callbacks_.on_progress && !callbacks_.on_progress(progress_)) {
        return fail(ErrorKind::interrupted, options_.destination,
                    "stopped; run the same command again to go on from here");
    }
    return {};
}

/// The range of trunk tensors that belongs to `layer`: they are listed layer by layer.
std::pair<size_t, size_t> Conversion::tensors_of(int64_t layer) const {
    const auto& specs = source_.trunk();
    const auto by_layer = [](const TensorSpec& spec, int64_t value) { return spec.layer < value; };
    const auto begin = std::lower_bound(specs.begin(), specs.end(), layer, by_layer);
    const auto end = std::lower_bound(begin, specs.end(), layer + 1, by_layer);
    return {static_cast<size_t>(begin - specs.begin()), static_cast<size_t>(end - specs.begin())};
}

Result<void> Conversion::write_trunk_layer(int64_t layer, const OutputFile& file,
                                           std::vector<uint64_t>& hashes) {
    TrunkEncoder encoder(source_, pool_);
    const auto [begin, end] = tensors_of(layer);
    for (size_t i = begin; i < end; i++) {
        const container::TensorEntry& entry = layout_.tensors[i];
        container::Hasher hasher;
        const auto sink = [&](uint64_t offset, std::span<const std::byte> bytes) -> Result<void> {
            hasher.update(bytes);
            if (const auto ok = file.write_at(entry.offset + offset, bytes); !ok) return ok;
            return advance(bytes.size(), false, entry.name);
        };
        if (const auto ok = encoder.encode(i, entry, sink); !ok) return ok;
        source_.checkpoint().release_pages(source_.trunk_source(i));
        hashes.push_back(hasher.digest_64());
    }
    return {};
}

Result<void> Conversion::write_trunk(Journal& journal) {
    const std::string name = path(container::kTrunkName);
    const bool whole = container::is_file(name);
    // What the journal says of the trunk holds while the file it speaks of is there.
    const std::string partial = name + std::string(container::kPartialSuffix);
    const bool resumable = whole || container::file_size(partial).value_or(0) == layout_.trunk_bytes;
    std::optional<OutputFile> file;
    if (!whole) {
        auto created = OutputFile::create(name, OutputFile::Existing::resume);
        if (!created) return pass(created);
        file = std::move(*created);
        if (const auto ok = file->resize(layout_.trunk_bytes); !ok) return ok;
    }
    for (int64_t layer = -1; layer <= source_.config().num_hidden_layers; layer++) {
        const auto [begin, end] = tensors_of(layer);
        std::vector<uint64_t> hashes;
        const std::vector<uint64_t>* done = resumable ? journal.trunk_layer(layer) : nullptr;
        if (done && done->size() == end - begin) {
            hashes = *done;
            uint64_t bytes = 0;
            for (size_t i = begin; i < end; i++) bytes += layout_.tensors[i].bytes;
            if (const auto ok = advance(bytes, true, "trunk"); !ok) return ok;
        } else if (whole) {
            return fail(ErrorKind::corrupt, options_.destination,
                        "trunk.bin is finished but the journal does not know it; remove the directory and "
                        "start anew");
        } else {
            if (const auto ok = write_trunk_layer(layer, *file, hashes); !ok) return ok;
            if (const auto ok = file->sync(); !ok) return ok;
            if (const auto ok = journal.finish_trunk_layer(layer, hashes); !ok) return ok;
        }
        for (size_t i = begin; i < end; i++) layout_.tensors[i].hash = hashes[i - begin];
    }
    return whole ? Result<void>{} : file->commit();
}

/// True if an earlier run finished this bank, renamed or not; it is not written again.
Result<bool> Conversion::reuse_bank(const container::BankEntry& bank) const {
    const std::string name = path(bank.file);
    if (container::is_file(name)) return true;
    const std::string partial = name + std::string(container::kPartialSuffix);
    if (!container::is_file(partial) ||
        container::file_size(partial).value_or(0) != bank.shape.file_bytes()) {
        return false;
    }
    auto file = OutputFile::create(name, OutputFile::Existing::resume);
    if (!file) return pass(file);
    if (const auto ok = file->commit(); !ok) return pass(ok);
    return true;
}

Result<void> Conversion::write_bank(container::BankEntry& bank, Journal& journal) {
    const std::string what = fmt::format("experts of layer {}", bank.layer);
    if (const uint64_t* table_hash = journal.bank(bank.layer)) {
        const auto reused = reuse_bank(bank);
        if (!reused) return pass(reused);
        if (*reused) {
            bank.table_hash = *table_hash;
            return advance(bank.shape.file_bytes(), true, what);
        }
    }
    auto file = OutputFile::create(path(bank.file), OutputFile::Existing::replace);
    if (!file) return pass(file);
    std::vector<container::ExpertEntry> entries(static_cast<size_t>(bank.shape.experts));
    if (const auto ok = write_records(bank, *file, entries); !ok) return ok;
    const auto table = container::bank_table_bytes(bank.shape, bank.layer, entries);
    const uint64_t records = bank.shape.record_bytes() * entries.size();
    if (const auto ok = file->write_at(records, table); !ok) return ok;
    bank.table_hash = container::bank_table_hash(entries);
    // On the drive, then in the journal, then under its name: whatever has its name is never touched again.
    if (const auto ok = file->sync(); !ok) return ok;
    if (const auto ok = journal.finish_bank(bank.layer, bank.table_hash); !ok) return ok;
    if (const auto ok = file->commit(); !ok) return ok;
    return advance(table.size(), false, what);
}

Result<void> Conversion::write_records(const container::BankEntry& bank, const OutputFile& file,
                                       std::vector<container::ExpertEntry>& entries) {
    const uint64_t record_bytes = bank.shape.record_bytes();
    const std::string what = fmt::format("experts of layer {}", bank.layer);
    const auto most = static_cast<int64_t>(std::max<uint64_t>(1, kRecordBudgetBytes / record_bytes));
    std::atomic<int64_t> next{0};
    std::atomic<bool> stop{false};
    std::optional<Error> first_error;  // guarded by progress_mutex_
    // One task a thread, each with a record of its own, taking experts until none is left.
    pool_.run(std::min<int64_t>(pool_.size(), most), [&](int64_t) {
        std::vector<std::byte> record(record_bytes);
        std::vector<float> rows;
        for (int64_t e = next++; e < bank.shape.experts && !stop; e = next++) {
            const uint64_t offset = static_cast<uint64_t>(e) * record_bytes;
            auto ok = encode_expert(source_, bank.layer, e, bank.shape, rows, record);
            if (ok) ok = file.write_at(offset, record);
            entries[static_cast<size_t>(e)] = {0, 0, offset, record_bytes, container::xxh3_64(record)};
            const std::lock_guard lock(progress_mutex_);
            if (ok) ok = advance(record_bytes, false, what);
            if (ok) continue;
            if (!first_error) first_error = ok.error();
            stop = true;
        }
    });
    if (first_error) return tl::unexpected(*first_error);
    return {};
}

Result<std::string> Conversion::write_manifest() {
    container::Manifest manifest{};
    manifest.config = source_.config_text();
    manifest.trunk_recipe = trunk_recipe_name(options_.trunk);
    manifest.expert_recipe = kernels::format_info(expert_format_).name;
    manifest.trunk_bytes = layout_.trunk_bytes;
    manifest.tensors = layout_.tensors;
    manifest.banks = layout_.banks;
    for (const CarriedContent& file : carried_) {
        if (const auto ok = container::write_file(path(file.name), file.content); !ok) return pass(ok);
        manifest.files.push_back(describe(file));
    }
    std::vector<std::vector<container::ExpertEntry>> tables;
    for (const container::BankEntry& bank : layout_.banks) {
        const auto mapped = container::MappedFile::open(path(bank.file));
        if (!mapped) return pass(mapped);
        auto table = container::parse_bank_table(mapped->bytes(), bank, path(bank.file));
        if (!table) return pass(table);
        tables.push_back(std::move(*table));
    }
    manifest.fingerprint = container::compute_fingerprint(manifest, tables);
    const auto ok = container::write_file(path(container::kManifestName), container::manifest_text(manifest));
    if (!ok) return pass(ok);
    if (const auto removed = container::remove_file(path(kJournalName)); !removed) return pass(removed);
    return manifest.fingerprint;
}

Result<std::string> Conversion::run() {
    const auto finished = already_finished();
    if (!finished) return pass(finished);
    if (*finished) {
        if (callbacks_.on_start) callbacks_.on_start(summary(true));
        // A run killed behind its last step has left it.
        if (container::is_file(path(kJournalName))) {
            if (const auto ok = container::remove_file(path(kJournalName)); !ok) return pass(ok);
        }
        const auto existing = container::Container::open(options_.destination);
        if (!existing) return pass(existing);
        return existing->manifest().fingerprint;
    }
    if (const auto ok = check_destination(); !ok) return pass(ok);
    const ConvertSummary about = summary(false);
    if (callbacks_.on_start) callbacks_.on_start(about);
    if (const auto ok = check_space(about); !ok) return pass(ok);
    if (const auto ok = container::make_directory(options_.destination); !ok) return pass(ok);
    const auto lock = container::DirectoryLock::acquire(options_.destination);
    if (!lock) return pass(lock);
    auto journal = Journal::open(options_.destination, identity());
    if (!journal) return pass(journal);
    progress_.bytes_total = layout_.total_bytes();
    if (const auto ok = write_trunk(*journal); !ok) return pass(ok);
    for (container::BankEntry& bank : layout_.banks) {
        if (const auto ok = write_bank(bank, *journal); !ok) return pass(ok);
    }
    return write_manifest();
}

/// Tokenizer files that would be refused at run time are refused now. Returns what was tolerated in them.
Result<std::vector<std::string>> check_tokenizer(const Source& source,
                                                 const std::vector<CarriedContent>& carried) {
    const CarriedContent* ranks = find_carried(carried, "tiktoken.model");
    const CarriedContent* specials = find_carried(carried, "tokenizer_config.json");
    if (!ranks) return std::vector<std::string>();
    const auto tokenizer = Tokenizer::create(ranks->content, specials ? specials->content : "{}",
                                             source.config().vocab_size, source.directory());
    if (!tokenizer) return pass(tokenizer);
    return tokenizer->warnings();
}

}  // namespace

Result<kernels::Format> choose_expert_format(const ConvertOptions& options, const Source& source) {
    const kernels::Format fallback = source.packed_experts() ? kernels::Format::mxfp4 : kernels::Format::q4;
    const kernels::Format format = options.experts.value_or(fallback);
    if (format == kernels::Format::mxfp4 && !source.packed_experts()) {
        return fail(ErrorKind::invalid, "--experts mxfp4",
                    "copies MXFP4 experts as released, and this release has none; use q4, q8, bf16 or f32");
    }
    return format;
}

Result<std::string> convert(const ConvertOptions& options, const ConvertCallbacks& callbacks) {
    auto source = Source::open(options.source);
    if (!source) return pass(source);
    auto carried = read_carried_files(options.source);
    if (!carried) return pass(carried);
    auto notes = check_tokenizer(*source, *carried);
    if (!notes) return pass(notes);
    const auto expert_format = choose_expert_format(options, *source);
    if (!expert_format) return pass(expert_format);
    const auto released = [&](size_t i) {
        return source->checkpoint().tensor(source->trunk_source(i)).dtype;
    };
    auto layout = plan_layout(source->config(), source->trunk(), options.trunk, *expert_format, released);
    if (!layout) return pass(layout);
    Conversion conversion(options, callbacks, std::move(*source), *expert_format, std::move(*layout),
                          std::move(*carried), std::move(*notes));
    return conversion.run();
}

}  // namespace waste::engine
