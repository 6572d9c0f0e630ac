// One token: every expert is cut by panels, so that all threads work on each; those that have landed are computed
// together, then those that landed meanwhile. Several: a task is one expert on up to kExpertTile of its tokens, gate to
// down, so that the weights are read once for all of them and nothing between gate and down leaves the cache; tasks
// stand in the order in which their experts were asked for. All give the same bits: the products do
// (kernels/matmul.h), and the sum over experts is made in the router's order by the caller.
#include "engine/layers/experts.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <numeric>

#include "kernels/format.h"

namespace waste::engine {
namespace {

// Experts of a block that are leased at a time: enough for the drive and the threads to be busy, few enough that a block,
// which touches most experts, does not push what the next tokens want out of the cache.
constexpr int32_t kMostLeases = 64;

/// The rows of `from` that a task wants, as an input of their own.
void gather(const Input& from, std::span<const int64_t> tokens, Input& to) {
    to.set(nullptr, from.cols, from.cols, static_cast<int64_t>(tokens.size()));
    to.quantized = true;
    constexpr int64_t kGroups = kernels::kBlockGroups;
    for (int64_t block = 0; block < kernels::block_count(from.cols); block++) {
        for (int64_t i = 0; i < to.tokens; i++) {
            const int64_t source = block * from.tokens + tokens[static_cast<size_t>(i)];
            const int64_t target = block * to.tokens + i;
            std::memcpy(to.codes + target * kernels::kBlockCols, from.codes + source * kernels::kBlockCols,
                        kernels::kBlockCols);
            std::memcpy(to.scales + target * kGroups, from.scales + source * kGroups,
                        kGroups * sizeof(float));
            std::memcpy(to.sums + target * kGroups, from.sums + source * kGroups, kGroups * sizeof(int32_t));
        }
    }
}

}  // namespace

RoutedExperts::RoutedExperts(Step& step, size_t bank)
    : step_(step),
      bank_(bank),
      format_(step.container.manifest().banks[bank].shape.format),
      int8_(step.executor.uses_int8(format_)) {
    Workspace& w = step.workspace;
    group_by_expert();
    for (size_t expert = 0; expert + 1 < w.expert_first.size(); expert++) {
        if (w.expert_first[expert] == w.expert_first[expert + 1]) continue;
        w.expert_order[static_cast<size_t>(experts_++)] = static_cast<int32_t>(expert);
    }
    step.experts.order(bank, std::span(w.expert_order).first(static_cast<size_t>(experts_)));
    ask_for_more();
}

RoutedExperts::~RoutedExperts() {
    // Only after an error are there any left.
    const std::span all(step_.workspace.expert_leases);
    for (ExpertStore::Lease& lease : all.first(static_cast<size_t>(leased_.load()))) lease.release();
}

/// Orders pairs of (token, rank) by expert, tokens ascending within one.
void RoutedExperts::group_by_expert() {
    Workspace& w = step_.workspace;
    const auto pairs = static_cast<size_t>(step_.tokens * step_.config.num_experts_per_token);
    std::fill(w.expert_first.begin(), w.expert_first.end(), 0);
    for (size_t pair = 0; pair < pairs; pair++) w.expert_first[static_cast<size_t>(w.expert_ids[pair])]++;
    std::exclusive_scan(w.expert_first.begin(), w.expert_first.end(), w.expert_first.begin(), int64_t{0});
    for (size_t pair = 0; pair < pairs; pair++) {
        const int64_t row = w.expert_first[static_cast<size_t>(w.expert_ids[pair])]++;
        w.pairs[static_cast<size_t>(row)] = static_cast<int64_t>(pair);
        w.pair_row[pair] = row;
    }
    // Each entry has moved on to the next one's start.
    std::copy_backward(w.expert_first.begin(), w.expert_first.end() - 1, w.expert_first.end());
    w.expert_first.front() = 0;
}

/// Leases in the order of the experts, as far as the cache has slots. Where none of this block's leases is left to be
/// given back it waits for a slot, or the tasks would wait for ever.
void RoutedExperts::ask_for_more() {
    const std::lock_guard lock(mutex_);
    const int32_t leased = leased_.load(std::memory_order_relaxed);
    const int32_t ahead = leased - finished_.load(std::memory_order_relaxed);
    const int32_t wanted = std::min(experts_ - leased, kMostLeases - ahead);
    if (wanted <= 0) return;
    Workspace& w = step_.workspace;
    const auto begin = static_cast<size_t>(leased), count = static_cast<size_t>(wanted);
    const size_t got = step_.experts.acquire(bank_, std::span(w.expert_order).subspan(begin, count),
                                             std::span(w.expert_leases).subspan(begin, count), ahead == 0);
    leased_.store(leased + static_cast<int32_t>(got), std::memory_order_release);
    leased_.notify_all();
}

Result<void> RoutedExperts::run(const float* z) {
    const int64_t width = step_.config.expert_input_size();
    Input& input = step_.workspace.input;
    input.set(z, width, width, step_.tokens);
    if (int8_) {
        Input* const one = &input;
        step_.executor.quantize({&one, 1});
    }
    return step_.tokens == 1 ? run_one_token() : run_several_tokens();
}

Result<void> RoutedExperts::run_one_token() {
    Workspace& w = step_.workspace;
    const std::span all = std::span(w.expert_waiting).first(static_cast<size_t>(experts_));
    std::iota(all.begin(), all.end(), 0);
    for (int32_t done = 0; done < experts_;) {
        const uint32_t seen = step_.experts.landed();
        const int32_t leased = leased_.load(std::memory_order_relaxed);
        const auto waiting = all.subspan(static_cast<size_t>(done), static_cast<size_t>(leased - done));
        const auto still_reading = std::partition(waiting.begin(), waiting.end(), [&](int32_t index) {
            return w.expert_leases[static_cast<size_t>(index)].landed();
        });
        const auto here = waiting.first(static_cast<size_t>(still_reading - waiting.begin()));
        if (here.empty()) {
            step_.experts.wait_for_landing(bank_, seen);
            continue;
        }
        if (const auto ok = run_landed(here); !ok) return ok;
        for (const int32_t index : here) w.expert_leases[static_cast<size_t>(index)].release();
        done += static_cast<int32_t>(here.size());
        finished_.store(done, std::memory_order_relaxed);
        ask_for_more();
    }
    return {};
}

/// Those of a single token's experts that are here; indices into expert_order.
Result<void> RoutedExperts::run_landed(std::span<const int32_t> indices) {
    const ModelConfig& c = step_.config;
    Workspace& w = step_.workspace;
    const int64_t inner = c.moe_intermediate_size, width = c.expert_input_size();
    const auto row_of = [&](int32_t index) {
        return w.expert_first[static_cast<size_t>(w.expert_order[static_cast<size_t>(index)])];
    };
    if (!step_.experts.streams()) {
        // At its first use a mapped expert's pages are waited for and its checksum is compared: all at once, so that the
        // loop below finds that done.
        step_.executor.pool().run(static_cast<int64_t>(indices.size()), [&](int64_t i) {
            (void)w.expert_leases[static_cast<size_t>(indices[static_cast<size_t>(i)])].view();
        });
    }
    w.products.clear();
    for (const int32_t index : indices) {
        const auto view = w.expert_leases[static_cast<size_t>(index)].view();
        if (!view) return pass(view);
        const int64_t row = row_of(index);
        Matrix* matrices = &w.expert_matrices[3 * static_cast<size_t>(row)];
        matrices[0] = {view->gate, format_};
        matrices[1] = {view->up, format_};
        matrices[2] = {view->down, format_};
        w.products.push_back({&matrices[0], &w.input, w.expert_gate + row * inner, inner});
        w.products.push_back({&matrices[1], &w.input, w.expert_up + row * inner, inner});
    }
    step_.executor.multiply(w.products);
    step_.executor.pool().run(static_cast<int64_t>(indices.size()), [&](int64_t i) {
        const int64_t row = row_of(indices[static_cast<size_t>(i)]);
        float* gate = w.expert_gate + row * inner;
        glu(step_, gate, w.expert_up + row * inner, inner, gate);
    });
    w.products.clear();
    for (const int32_t index : indices) {
        const int64_t row = row_of(index);
        Input& input = w.inputs[static_cast<size_t>(row)];
        input.set(w.expert_gate + row * inner, inner, inner, 1);
        w.products.push_back({&w.expert_matrices[3 * static_cast<size_t>(row) + 2], &input,
                              w.expert_out + row * width, width});
    }
    step_.executor.multiply(w.products);
    return {};
}

void RoutedExperts::list_tasks() {
    Workspace& w = step_.workspace;
    w.expert_tasks.clear();
    for (int32_t index = 0; index < experts_; index++) {
        const auto expert = static_cast<size_t>(w.expert_order[static_cast<size_t>(index)]);
        const int64_t end = w.expert_first[expert + 1];
        int32_t tasks = 0;
        for (int64_t begin = w.expert_first[expert]; begin < end; begin += kExpertTile, tasks++) {
            w.expert_tasks.push_back({index, begin, std::min(kExpertTile, end - begin)});
        }
        w.tasks_left[static_cast<size_t>(index)].store(tasks, std::memory_order_relaxed);
    }
}

Result<void> RoutedExperts::run_several_tokens() {
    Workspace& w = step_.workspace;
    list_tasks();
    std::mutex mutex;
    std::optional<Error> error;  // guarded by mutex
    step_.executor.pool().run(static_cast<int64_t>(w.expert_tasks.size()), [&](int64_t task, int thread) {
        const auto ok =
            run_task(w.expert_tasks[static_cast<size_t>(task)], w.scratch[static_cast<size_t>(thread)]);
        if (ok) return;
        const std::lock_guard lock(mutex);
        if (!error) error = ok.error();
    });
    if (error) return tl::unexpected(std::move(*error));
    return {};
}

/// Waits for the expert's lease. Tasks are taken in the order of the experts, so those that hold the leases before it
/// are being computed and give theirs back.
void RoutedExperts::wait_for_turn(int32_t index) {
    int32_t leased = leased_.load(std::memory_order_acquire);
    if (index < leased) return;
    const auto start = std::chrono::steady_clock::now();
    for (; index >= leased; leased = leased_.load(std::memory_order_acquire)) {
        leased_.wait(leased, std::memory_order_acquire);
    }
    step_.experts.count_wait(bank_, std::chrono::steady_clock::now() - start);
}

Result<void> RoutedExperts::run_task(const ExpertTask& task, float* scratch) {
    Workspace& w = step_.workspace;
    const auto index = static_cast<size_t>(task.index);
    wait_for_turn(task.index);
    const auto view = w.expert_leases[index].view();
    if (view) compute(task, *view, scratch);
    if (w.tasks_left[index].fetch_sub(1, std::memory_order_acq_rel) == 1) {
        w.expert_leases[index].release();
        finished_.fetch_add(1, std::memory_order_acq_rel);
        ask_for_more();
    }
    if (!view) return pass(view);
    return {};
}

void RoutedExperts::compute(const ExpertTask& task, const container::ExpertView& view, float* scratch) const {
    const ModelConfig& c = step_.config;
    const int64_t inner = c.moe_intermediate_size;
    ExpertScratch s(c, scratch);
    take_rows(task, s);
    multiply(view.gate, s.input, s.gate, inner);
    multiply(view.up, s.input, s.up, inner);
    glu(step_, s.gate, s.up, task.count * inner, s.gate);
    s.inner.set(s.gate, inner, inner, task.count);
    for (int64_t t = 0; int8_ && t < task.count; t++) step_.executor.quantize_token(s.inner, t);
    multiply(view.down, s.inner, step_.workspace.expert_out + task.begin * c.expert_input_size(),
             c.expert_input_size());
}

void RoutedExperts::take_rows(const ExpertTask& task, ExpertScratch& s) const {
    const int64_t top_k = step_.config.num_experts_per_token, width = step_.config.expert_input_size();
    const Input& z = step_.workspace.input;
    int64_t tokens[kExpertTile];
    for (int64_t i = 0; i < task.count; i++) {
        tokens[i] = step_.workspace.pairs[static_cast<size_t>(task.begin + i)] / top_k;
    }
    if (int8_) {
        gather(z, {tokens, static_cast<size_t>(task.count)}, s.input);
        return;
    }
    for (int64_t i = 0; i < task.count; i++) {
        std::copy_n(z.values + tokens[i] * z.stride, width, s.rows + i * width);
    }
    s.input.set(s.rows, width, width, task.count);
}

void RoutedExperts::multiply(const kernels::Panels& w, const Input& x, float* y, int64_t y_stride) const {
    step_.executor.multiply_part({w, format_}, x, 0, kernels::panel_count(w.rows), 0, x.tokens, y, y_stride);
}

}  // namespace waste::engine
