#include "engine/evaluate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>

namespace waste::engine {
namespace {

double log_sum_exp(std::span<const float> logits) {
    const double largest = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
    return largest + std::log(sum);
}

}  // namespace

std::vector<TokenProbability> likeliest(std::span<const float> logits, int64_t count) {
    std::vector<int32_t> order(logits.size());
    for (size_t i = 0; i < order.size(); i++) order[i] = static_cast<int32_t>(i);
    const auto rank = [&](int32_t id) {  // NaN comes last, which keeps the order strict
        const float logit = logits[static_cast<size_t>(id)];
        return std::isnan(logit) ? -std::numeric_limits<float>::infinity() : logit;
    };
    const auto before = [&](int32_t a, int32_t b) { return rank(a) != rank(b) ? rank(a) > rank(b) : a < b; };
    const auto kept = static_cast<std::ptrdiff_t>(std::min(count, static_cast<int64_t>(order.size())));
    std::partial_sort(order.begin(), order.begin() + kept, order.end(), before);
    const double normalizer = log_sum_exp(logits);
    std::vector<TokenProbability> out;
    for (std::ptrdiff_t i = 0; i < kept; i++) {
        const int32_t id = order[static_cast<size_t>(i)];
        const float logit = logits[static_cast<size_t>(id)];
        out.push_back({id, logit, std::exp(static_cast<double>(logit) - normalizer)});
    }
    return out;
}

double negative_log_likelihood(std::span<const float> logits, int32_t target) {
    return log_sum_exp(logits) - static_cast<double>(logits[static_cast<size_t>(target)]);
}

Result<Perplexity> measure_perplexity(Session& session, std::span<const int32_t> ids,
                                      const PerplexityOptions& options,
                                      const std::function<bool(int64_t, int64_t)>& on_window) {
    if (options.window < 2 || options.stride < 1 || options.stride > options.window) {
        return fail(ErrorKind::invalid, "perplexity", "needs window >= 2 and 1 <= stride <= window");
    }
    const auto count = static_cast<int64_t>(ids.size());
    if (count < options.window) {
        return fail(
            ErrorKind::invalid, "perplexity",
            fmt::format("the text has {} tokens, fewer than one window of {}", count, options.window));
    }
    int64_t windows = (count - options.window) / options.stride + 1;
    if (options.most_windows > 0) windows = std::min(windows, options.most_windows);
    Perplexity out{};
    int64_t scored_to = 0;  // absolute position behind the last token scored
    for (int64_t i = 0; i < windows; i++) {
        const int64_t begin = i * options.stride;
        const auto window = ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(options.window));
        session.clear();
        double nll = 0;
        const auto ok = session.feed(window, [&](int64_t position, std::span<const float> logits) {
            const int64_t next = position + 1;
            if (next < options.window && begin + next >= scored_to) {
                nll += negative_log_likelihood(logits, window[static_cast<size_t>(next)]);
                out.scored_tokens++;
            }
        });
        if (!ok) return pass(ok);
        if (!std::isfinite(nll)) {
            return fail(ErrorKind::corrupt, fmt::format("window {}", i),
                        "the model's output is not a number");
        }
        scored_to = begin + options.window;
        out.window_nll.push_back(nll);
        if (!on_window(i + 1, windows)) return fail(ErrorKind::interrupted, "perplexity", "stopped");
    }
    double total = 0;
    for (const double nll : out.window_nll) total += nll;
    out.loss = total / static_cast<double>(out.scored_tokens);
    out.perplexity = std::exp(out.loss);
    return out;
}

}  // namespace waste::engine
