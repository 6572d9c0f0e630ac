#include "engine/convert/convert.h"

#include <algorithm>

#include "container/file.h"
#include "engine/convert/bank_writer.h"
#include "engine/convert/destination.h"
#include "engine/convert/job.h"
#include "engine/convert/journal.h"
#include "engine/convert/trunk_writer.h"

namespace waste::engine {
namespace {

class Conversion {
  public:
    Conversion(const ConvertOptions& options, const ConvertCallbacks& callbacks, ConvertJob job)
        : callbacks_(callbacks),
          job_(std::move(job)),
          destination_(options.destination),
          pool_(std::max(1, options.threads)) {}

    Result<std::string> run();

  private:
    Result<void> begin();
    Result<std::string> write();
    Result<std::string> write_manifest();
    void report_start(bool finished) const;

    const ConvertCallbacks& callbacks_;
    ConvertJob job_;
    Destination destination_;
    ThreadPool pool_;
};

void Conversion::report_start(bool finished) const {
    if (!callbacks_.on_start) return;
    const Source& source = job_.source;
    const ModelConfig& config = source.config();
    ConvertSummary summary{};
    summary.family = config.family;
    summary.layers = config.num_hidden_layers;
    summary.moe_layers = config.moe_layer_count();
    summary.experts_per_layer = config.num_experts;
    summary.source_tensors = source.checkpoint().size();
    summary.source_bytes = source.checkpoint().data_bytes();
    summary.trunk_bytes = job_.layout.trunk_bytes;
    summary.expert_bytes = job_.layout.expert_bytes();
    summary.expert_format = job_.expert_format;
    summary.free_bytes = destination_.free_bytes();
    summary.has_tokenizer = find_carried(job_.carried, "tiktoken.model") != nullptr;
    summary.ignored = source.ignored();
    summary.notes = job_.notes;
    summary.resumed = destination_.has_journal();
    summary.finished = finished;
    callbacks_.on_start(summary);
}

Result<std::string> Conversion::run() {
    auto finished = destination_.finished(job_, pool_);
    if (!finished) return pass(finished);
    if (*finished && !destination_.has_journal()) {
        report_start(true);
        return **finished;
    }
    if (!*finished) {
        if (const auto ok = begin(); !ok) return pass(ok);
    }
    const auto lock = container::DirectoryLock::acquire(destination_.directory());
    if (!lock) return pass(lock);
    // Once more: another run may have finished it before this one held the lock.
    finished = destination_.finished(job_, pool_);
    if (!finished) return pass(finished);
    if (!*finished) return write();
    report_start(true);
    // A run killed behind its last step has left it.
    if (const auto ok = destination_.remove_journal(); !ok) return pass(ok);
    return **finished;
}

/// Everything that can be known to fail, then the directory.
Result<void> Conversion::begin() {
    if (const auto ok = destination_.check_usable(); !ok) return ok;
    report_start(false);
    if (const auto ok = destination_.check_space(job_.layout); !ok) return ok;
    return container::make_directory(destination_.directory());
}

Result<std::string> Conversion::write() {
    auto journal = Journal::open(destination_.directory(), job_.identity());
    if (!journal) return pass(journal);
    ProgressMeter progress(callbacks_.on_progress, destination_.directory(), job_.layout.total_bytes());
    const WriteContext context{job_.source, destination_, pool_, *journal, progress};
    if (const auto ok = write_trunk(context, job_.layout); !ok) return pass(ok);
    for (container::BankEntry& bank : job_.layout.banks) {
        if (const auto ok = write_bank(context, bank); !ok) return pass(ok);
    }
    return write_manifest();
}

Result<std::string> Conversion::write_manifest() {
    container::Manifest manifest{};
    manifest.config = job_.source.config_text();
    manifest.trunk_recipe = job_.trunk_recipe;
    manifest.expert_recipe = job_.expert_recipe;
    manifest.trunk_bytes = job_.layout.trunk_bytes;
    manifest.tensors = job_.layout.tensors;
    manifest.banks = job_.layout.banks;
    for (const CarriedContent& file : job_.carried) {
        const auto written = container::write_file(destination_.path(file.name), file.content);
        if (!written) return pass(written);
        manifest.files.push_back(describe(file));
    }
    std::vector<std::vector<container::ExpertEntry>> tables;
    for (const container::BankEntry& bank : manifest.banks) {
        const auto mapped = container::MappedFile::open(destination_.path(bank.file));
        if (!mapped) return pass(mapped);
        auto table = container::parse_bank_table(mapped->bytes(), bank, mapped->path());
        if (!table) return pass(table);
        tables.push_back(std::move(*table));
    }
    manifest.fingerprint = container::compute_fingerprint(manifest, tables);
    const auto ok = container::write_file(destination_.path(container::kManifestName),
                                          container::manifest_text(manifest));
    if (!ok) return pass(ok);
    if (const auto removed = destination_.remove_journal(); !removed) return pass(removed);
    return manifest.fingerprint;
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
    auto job = prepare_job(options);
    if (!job) return pass(job);
    return Conversion(options, callbacks, std::move(*job)).run();
}

}  // namespace waste::engine
