#include "engine/convert/bank_writer.h"

#include <fmt/format.h>

#include "container/checksum.h"
#include "container/file.h"
#include "engine/convert/encode.h"
#include "engine/convert/expert_tasks.h"

namespace waste::engine {
namespace {

using container::BankEntry;
using container::ExpertEntry;
using container::OutputFile;

std::string name_of(const BankEntry& bank) {
    return fmt::format("experts of layer {}", bank.layer);
}

/// True if an earlier run finished this bank, renamed or not; it is not written again.
Result<bool> reuse_bank(const std::string& path, const BankEntry& bank) {
    if (container::is_file(path)) return true;
    const std::string partial = path + std::string(container::kPartialSuffix);
    if (!container::is_file(partial) ||
        container::file_size(partial).value_or(0) != bank.shape.file_bytes()) {
        return false;
    }
    auto file = OutputFile::create(path, OutputFile::Existing::resume);
    if (!file) return pass(file);
    if (const auto ok = file->commit(); !ok) return pass(ok);
    return true;
}

Result<std::vector<ExpertEntry>> write_records(const WriteContext& context, const BankEntry& bank,
                                               const OutputFile& file) {
    const uint64_t record_bytes = bank.shape.record_bytes();
    const std::string what = name_of(bank);
    std::vector<ExpertEntry> entries(static_cast<size_t>(bank.shape.experts));
    const auto write = [&](int64_t expert, ExpertBuffers& buffers) -> Result<void> {
        const uint64_t offset = static_cast<uint64_t>(expert) * record_bytes;
        buffers.record.resize(record_bytes);
        const auto encoded =
            encode_expert(context.source, bank.layer, expert, bank.shape, buffers.rows, buffers.record);
        if (!encoded) return encoded;
        if (const auto ok = file.write_at(offset, buffers.record); !ok) return ok;
        entries[static_cast<size_t>(expert)] = {0, 0, offset, record_bytes,
                                                container::xxh3_64(buffers.record)};
        return context.progress.advance(record_bytes, what);
    };
    const auto written = for_each_expert(context.pool, bank.shape.experts, record_bytes, write);
    if (!written) return pass(written);
    return entries;
}

}  // namespace

Result<void> write_bank(const WriteContext& context, BankEntry& bank) {
    const std::string path = context.destination.path(bank.file);
    if (const uint64_t* table_hash = context.journal.bank(bank.layer)) {
        const auto reused = reuse_bank(path, bank);
        if (!reused) return pass(reused);
        if (*reused) {
            bank.table_hash = *table_hash;
            return context.progress.skip(bank.shape.file_bytes(), name_of(bank));
        }
    }
    auto file = OutputFile::create(path, OutputFile::Existing::replace);
    if (!file) return pass(file);
    const auto entries = write_records(context, bank, *file);
    if (!entries) return pass(entries);
    const auto table = container::bank_table_bytes(bank.shape, bank.layer, *entries);
    if (const auto ok = file->write_at(bank.shape.record_bytes() * entries->size(), table); !ok) return ok;
    bank.table_hash = container::bank_table_hash(*entries);
    // On the drive, then in the journal, then under its name: whatever has its name is never touched again.
    if (const auto ok = file->sync(); !ok) return ok;
    if (const auto ok = context.journal.finish_bank(bank.layer, bank.table_hash); !ok) return ok;
    if (const auto ok = file->commit(); !ok) return ok;
    return context.progress.advance(table.size(), name_of(bank));
}

}  // namespace waste::engine
