// The routed experts of a block. One token: every expert is cut by panels, so that all threads work on each.
// Several: a task is one expert on up to kExpertTile of its tokens, gate to down, so that the weights are read
// once for all of them and nothing between gate and down leaves the cache. Both give the same bits: the
// products do (kernels/matmul.h), and the sum over experts is made in the router's order by the caller.
#include <algorithm>
#include <cstring>
#include <mutex>
#include <numeric>
#include <optional>

#include "engine/layers/step.h"
#include "kernels/format.h"

namespace waste::engine {
namespace {

/// Orders pairs of (token, rank) by expert, tokens ascending within one.
void group_by_expert(const Step& step) {
    Workspace& w = step.workspace;
    const auto pairs = static_cast<size_t>(step.tokens * step.config.num_experts_per_token);
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

/// What one task needs to run an expert on gathered tokens.
class ExpertRun {
  public:
    ExpertRun(Step& step, size_t bank, const Input& z)
        : step_(step),
          bank_(bank),
          z_(z),
          format_(step.container.manifest().banks[bank].shape.format),
          int8_(step.executor.uses_int8(format_)) {}

    Result<void> run(const ExpertTask& task, float* scratch) const {
        const auto view = step_.container.expert(bank_, task.expert);
        if (!view) return pass(view);
        const ModelConfig& c = step_.config;
        const int64_t inner = c.moe_intermediate_size;
        ExpertScratch s(c, scratch);
        take_rows(task, s);
        multiply(view->gate, s.input, s.gate, inner);
        multiply(view->up, s.input, s.up, inner);
        glu(step_, s.gate, s.up, task.count * inner, s.gate);
        s.inner.set(s.gate, inner, inner, task.count);
        for (int64_t t = 0; int8_ && t < task.count; t++) step_.executor.quantize_token(s.inner, t);
        multiply(view->down, s.inner, step_.workspace.expert_out + task.begin * c.expert_input_size(),
                 c.expert_input_size());
        return {};
    }

  private:
    void take_rows(const ExpertTask& task, ExpertScratch& s) const {
        const int64_t top_k = step_.config.num_experts_per_token, width = step_.config.expert_input_size();
        int64_t tokens[kExpertTile];
        for (int64_t i = 0; i < task.count; i++) {
            tokens[i] = step_.workspace.pairs[static_cast<size_t>(task.begin + i)] / top_k;
        }
        if (int8_) {
            gather(z_, {tokens, static_cast<size_t>(task.count)}, s.input);
            return;
        }
        for (int64_t i = 0; i < task.count; i++) {
            std::copy_n(z_.values + tokens[i] * z_.stride, width, s.rows + i * width);
        }
        s.input.set(s.rows, width, width, task.count);
    }

    void multiply(const kernels::Panels& w, const Input& x, float* y, int64_t y_stride) const {
        step_.executor.multiply_part({w, format_}, x, 0, kernels::panel_count(w.rows), 0, x.tokens, y,
                                     y_stride);
    }

    Step& step_;
    size_t bank_;
    const Input& z_;
    kernels::Format format_;
    bool int8_;
};

Result<void> run_several_tokens(Step& step, size_t bank, Input& z) {
    Workspace& w = step.workspace;
    w.expert_tasks.clear();
    for (size_t expert = 0; expert + 1 < w.expert_first.size(); expert++) {
        const int64_t end = w.expert_first[expert + 1];
        for (int64_t begin = w.expert_first[expert]; begin < end; begin += kExpertTile) {
            w.expert_tasks.push_back(
                {static_cast<int32_t>(expert), begin, std::min(kExpertTile, end - begin)});
        }
    }
    const ExpertRun run(step, bank, z);
    std::mutex mutex;
    std::optional<Error> error;  // guarded by mutex
    step.executor.pool().run(static_cast<int64_t>(w.expert_tasks.size()), [&](int64_t task, int thread) {
        const auto ok =
            run.run(w.expert_tasks[static_cast<size_t>(task)], w.scratch[static_cast<size_t>(thread)]);
        if (ok) return;
        const std::lock_guard lock(mutex);
        if (!error) error = ok.error();
    });
    if (error) return tl::unexpected(std::move(*error));
    return {};
}

Result<void> run_one_token(Step& step, size_t bank, Input& z) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const kernels::Format format = step.container.manifest().banks[bank].shape.format;
    const int64_t top_k = c.num_experts_per_token, inner = c.moe_intermediate_size;
    w.products.clear();
    for (int64_t row = 0; row < top_k; row++) {
        const auto pair = static_cast<size_t>(w.pairs[static_cast<size_t>(row)]);
        const auto view = step.container.expert(bank, w.expert_ids[pair]);
        if (!view) return pass(view);
        Matrix* matrices = &w.expert_matrices[3 * static_cast<size_t>(row)];
        matrices[0] = {view->gate, format};
        matrices[1] = {view->up, format};
        matrices[2] = {view->down, format};
        w.products.push_back({&matrices[0], &z, w.expert_gate + row * inner, inner});
        w.products.push_back({&matrices[1], &z, w.expert_up + row * inner, inner});
    }
    step.executor.multiply(w.products);
    step.executor.pool().run(top_k, [&](int64_t row) {
        float* gate = w.expert_gate + row * inner;
        glu(step, gate, w.expert_up + row * inner, inner, gate);
    });
    w.products.clear();
    for (int64_t row = 0; row < top_k; row++) {
        Input& input = w.inputs[static_cast<size_t>(row)];
        input.set(w.expert_gate + row * inner, inner, inner, 1);
        w.products.push_back({&w.expert_matrices[3 * static_cast<size_t>(row) + 2], &input,
                              w.expert_out + row * c.expert_input_size(), c.expert_input_size()});
    }
    step.executor.multiply(w.products);
    return {};
}

}  // namespace

Result<void> run_experts(Step& step, size_t bank, const float* z) {
    const ModelConfig& c = step.config;
    Workspace& w = step.workspace;
    const int64_t width = c.expert_input_size();
    group_by_expert(step);
    for (size_t expert = 0; expert + 1 < w.expert_first.size(); expert++) {
        if (w.expert_first[expert] == w.expert_first[expert + 1]) continue;
        const auto id = static_cast<int32_t>(expert);
        step.container.prefetch(bank, {&id, 1});
    }
    w.input.set(z, width, width, step.tokens);
    if (step.executor.uses_int8(step.container.manifest().banks[bank].shape.format)) {
        Input* const input = &w.input;
        step.executor.quantize({&input, 1});
    }
    return step.tokens == 1 ? run_one_token(step, bank, w.input) : run_several_tokens(step, bank, w.input);
}

}  // namespace waste::engine
