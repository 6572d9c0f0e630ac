#include "engine/fit.h"

#include "container/machine.h"

namespace waste::engine {

Result<RunPlan> plan_for_machine(const Model& model, const SessionOptions& session,
                                 std::optional<uint64_t> budget_bytes) {
    const container::Manifest& manifest = model.container().manifest();
    const auto sizes = container_sizes(manifest.trunk_bytes, manifest.tensors, manifest.banks);
    // A system that does not tell its memory is not a reason to fail: then everything is mapped.
    std::optional<MemoryFacts> memory;
    const auto machine = container::read_machine_memory("");
    const auto now = container::read_memory_now("");
    if (machine && now) memory = MemoryFacts{machine->usable_bytes, now->available_bytes};
    return plan_run(model.config(), sizes, session.workspace(), budget_bytes, memory);
}

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

Result<RunPlan> fit_model(Model& model, const SessionOptions& session, const FitOptions& options) {
    const auto plan = plan_for_machine(model, session, options.budget_bytes);
    if (!plan) return plan;
    if (const auto ok = model.arrange(arrangement_of(*plan, options)); !ok) return pass(ok);
    return plan;
}

}  // namespace waste::engine
