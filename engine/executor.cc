#include "engine/executor.h"

#include <algorithm>

#include "kernels/format.h"
#include "kernels/quantize.h"

namespace waste::engine {
namespace {

// Weight bytes in a task: large enough that taking one costs nothing, small enough to balance the threads.
constexpr int64_t kTaskBytes = 128 << 10;

int64_t panels_per_task(const Matrix& w) {
    return std::max<int64_t>(1, kTaskBytes / kernels::panel_bytes(w.format, w.panels.cols));
}

}  // namespace

Executor::Executor(Compute compute, kernels::Tier tier, int threads)
    : compute_(compute), kernels_(kernels::kernels_for(tier)), pool_(threads) {}

void Executor::multiply(std::span<const Product> products) {
    first_task_.clear();
    int64_t tasks = 0;
    for (const Product& product : products) {
        first_task_.push_back(tasks);
        const int64_t panels = kernels::panel_count(product.w->panels.rows);
        const int64_t per_task = panels_per_task(*product.w);
        tasks += (panels + per_task - 1) / per_task;
        Input& x = *product.x;
        if (uses_int8(product.w->format) && !x.quantized) {
            kernels::quantize_int8(x.values, x.cols, x.codes, x.scales, x.sums);
            x.quantized = true;
        }
    }
    pool_.run(tasks, [&](int64_t task) {
        const auto next = std::upper_bound(first_task_.begin(), first_task_.end(), task);
        const auto index = static_cast<size_t>(next - first_task_.begin() - 1);
        const Product& product = products[index];
        const Matrix& w = *product.w;
        const int64_t per_task = panels_per_task(w);
        const int64_t begin = (task - first_task_[index]) * per_task;
        const int64_t end = std::min(begin + per_task, kernels::panel_count(w.panels.rows));
        const auto format = static_cast<size_t>(w.format);
        if (uses_int8(w.format)) {
            const kernels::Int8Vector x{product.x->codes, product.x->scales, product.x->sums};
            kernels_.matvec_int8[format](w.panels, x, begin, end, product.y);
        } else {
            kernels_.matvec_f32[format](w.panels, product.x->values, begin, end, product.y);
        }
    });
}

}  // namespace waste::engine
