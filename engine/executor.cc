#include "engine/executor.h"

#include <algorithm>

#include "kernels/format.h"

namespace waste::engine {
namespace {

// Weight bytes in a task: at most so many that they stay in a core's cache while several parts of a block's tokens
// pass, and that the threads have some tasks each; at least so many that taking one costs nothing.
constexpr int64_t kMostTaskBytes = 128 << 10, kLeastTaskBytes = 16 << 10;
constexpr int64_t kTasksPerThread = 8;
// Most tokens in a task: their codes stay in that cache too, while the task's panels pass.
constexpr int64_t kTaskTokens = 96;
// Below this many elements a parallel region costs more than the quantization.
constexpr int64_t kQuantizeAlone = 1 << 15;

/// How a product is cut into tasks: panels, and within them tokens.
struct Cut {
    int64_t panels;  ///< of a task
    int64_t parts;   ///< of the tokens, as even as they go
    int64_t tasks;

    Cut(const Product& product, int64_t task_bytes) {
        const Matrix& w = *product.w;
        const int64_t all = kernels::panel_count(w.panels.rows);
        const int64_t tokens = product.x->tokens;
        panels = std::max<int64_t>(1, task_bytes / kernels::panel_bytes(w.format, w.panels.cols));
        // The kernels for several tokens take panels in pairs.
        if (tokens > 1) panels = (panels + 1) / 2 * 2;
        parts = (tokens + kTaskTokens - 1) / kTaskTokens;
        tasks = (all + panels - 1) / panels * parts;
    }
};

/// The entry of `first` that holds `index`.
size_t holder(const std::vector<int64_t>& first, int64_t index) {
    return static_cast<size_t>(std::upper_bound(first.begin(), first.end(), index) - first.begin() - 1);
}

}  // namespace

Executor::Executor(Compute compute, kernels::Tier tier, int threads, const CpuBinding& binding)
    : compute_(compute), kernels_(kernels::kernels_for(tier)), pool_(threads, binding) {}

void Executor::quantize(std::span<Input* const> inputs) {
    unquantized_.clear();
    first_vector_.clear();
    int64_t vectors = 0, elements = 0;
    for (Input* x : inputs) {
        if (x->quantized) continue;
        x->quantized = true;
        unquantized_.push_back(x);
        first_vector_.push_back(vectors);
        vectors += x->tokens;
        elements += x->tokens * x->cols;
    }
    if (elements <= kQuantizeAlone) {
        for (const Input* x : unquantized_) {
            for (int64_t token = 0; token < x->tokens; token++) quantize_token(*x, token);
        }
        return;
    }
    pool_.run(vectors, [&](int64_t vector) {
        const size_t index = holder(first_vector_, vector);
        quantize_token(*unquantized_[index], vector - first_vector_[index]);
    });
}

void Executor::quantize_token(const Input& x, int64_t token) const {
    const int64_t at = token * kernels::kBlockGroups;
    kernels_.quantize->int8(x.values + token * x.stride, x.cols, x.tokens,
                            x.codes + token * kernels::kBlockCols, x.scales + at, x.sums + at);
}

void Executor::multiply_part(const Matrix& w, const Input& x, int64_t panel_begin, int64_t panel_end,
                             int64_t first, int64_t count, float* y, int64_t y_stride) const {
    const auto format = static_cast<size_t>(w.format);
    y += first * y_stride;
    if (uses_int8(w.format)) {
        kernels_.matmul_int8[format](w.panels, x.int8().part(first, count), panel_begin, panel_end, y,
                                     y_stride);
    } else {
        kernels_.matmul_f32[format](w.panels, x.values + first * x.stride, x.stride, count, panel_begin,
                                    panel_end, y, y_stride);
    }
}

void Executor::multiply(std::span<const Product> products) {
    first_task_.clear();
    int64_t bytes = 0, tasks = 0;
    for (const Product& product : products) {
        const kernels::Panels& w = product.w->panels;
        bytes += kernels::matrix_bytes(product.w->format, w.rows, w.cols);
    }
    const int64_t task_bytes =
        std::clamp(bytes / (kTasksPerThread * threads()), kLeastTaskBytes, kMostTaskBytes);
    for (const Product& product : products) {
        first_task_.push_back(tasks);
        tasks += Cut(product, task_bytes).tasks;
        if (uses_int8(product.w->format) && !product.x->quantized) to_quantize_.push_back(product.x);
    }
    quantize(to_quantize_);
    to_quantize_.clear();
    pool_.run(tasks, [&](int64_t task) {
        const size_t index = holder(first_task_, task);
        const Product& product = products[index];
        const Matrix& w = *product.w;
        const Input& x = *product.x;
        const Cut cut(product, task_bytes);
        const int64_t index_in_product = task - first_task_[index];
        const int64_t begin = index_in_product / cut.parts * cut.panels;
        const int64_t end = std::min(begin + cut.panels, kernels::panel_count(w.panels.rows));
        const int64_t part = index_in_product % cut.parts;
        const int64_t first = x.tokens * part / cut.parts;
        const int64_t count = x.tokens * (part + 1) / cut.parts - first;
        multiply_part(w, x, begin, end, first, count, product.y, product.y_stride);
    });
}

}  // namespace waste::engine
