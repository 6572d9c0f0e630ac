#include "engine/fit.h"

#include "container/known_drives.h"
#include "container/live_files.h"
#include "container/mirrors.h"

namespace waste::engine {

Arrangement arrangement_of(const RunPlan& plan, const FitOptions& options) {
    Arrangement out;
    out.reader = options.reader;
    out.trunk.copy = options.copy_trunk;
    out.trunk.lock = options.lock;
    out.trunk.verify = options.verify;
    if (plan.trunk == Held::streamed) {
        out.trunk.mapped_layers = plan.mapped_layers;
        out.trunk.stream_head = !plan.head_mapped;
    }
    out.experts.policy = options.policy;
    out.experts.verify = options.verify;
    if (plan.experts == Held::streamed) out.experts.slots = static_cast<int64_t>(plan.cache_slots);
    return out;
}

Result<Fitted> fit_model(Model& model, const SessionOptions& session, const FitOptions& options) {
    const container::Manifest& manifest = model.container().manifest();
    const auto sizes = container_sizes(manifest.trunk_bytes, manifest.tensors, manifest.banks);
    std::optional<Result<RunPlan>> plan;
    const auto decide = [&](std::span<const Neighbour> others) -> Result<uint64_t> {
        // A system that does not tell its memory is no reason to fail: then everything is mapped.
        const auto facts = read_memory_facts("", others);
        plan = plan_run(model.config(), sizes, session.shape(), options.budget_bytes,
                        facts ? std::optional(*facts) : std::nullopt);
        if (!*plan) return pass(*plan);
        return (*plan)->total_bytes;
    };
    Fitted out{};
    auto entry = BudgetEntry::enter(container::user_runtime_directory(), decide);
    if (!plan) (void)decide({});  // the others could not be asked
    if (!*plan) return pass(*plan);
    if (entry) {
        out.entry = std::move(*entry);
    } else {
        out.warning = entry.error().text() + "; other engines on this machine do not see this one";
    }
    out.plan = **plan;
    if (out.plan.budget_source == BudgetSource::least) {
        out.warning = "memory is short: even the least that works takes more than is safe";
    }
    Arrangement arrangement = arrangement_of(out.plan, options);
    const auto drive = container::known_drive(model.container().directory());
    if (drive && options.reader.depth == 0 && options.reader.piece_bytes == 0) {
        arrangement.reader.depth = drive->depth;
        arrangement.reader.piece_bytes = drive->piece_bytes;
    }
    auto copies = container::find_copies(manifest, options.mirrors);
    if (!copies) return pass(copies);
    arrangement.reader.copies = std::move(*copies);
    if (const auto ok = model.arrange(arrangement); !ok) return pass(ok);
    return out;
}

}  // namespace waste::engine
