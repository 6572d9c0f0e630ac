#include "kernels/router.h"

#include <cmath>
#include <limits>

namespace waste::kernels {
namespace {

/// A strict order in which NaN is below every number.
bool better(float a, float b) {
    return a > b || (std::isnan(b) && !std::isnan(a));
}

/// Fills `ids` with the best experts, best first, and returns the choice score of the best one left out.
/// Experts come in ascending order and have to be strictly better to pass one another: ties stay low.
float select_top(const float* choice, int64_t experts, int64_t top_k, int32_t* ids) {
    float runner_up = -std::numeric_limits<float>::infinity();
    int64_t chosen = 0;
    for (int64_t expert = 0; expert < experts; ++expert) {
        int64_t rank = chosen;
        while (rank > 0 && better(choice[expert], choice[ids[rank - 1]])) --rank;
        const bool full = chosen == top_k;
        if (full) {
            const float loser = rank < top_k ? choice[ids[top_k - 1]] : choice[expert];
            if (better(loser, runner_up)) runner_up = loser;
            if (rank == top_k) continue;
        }
        for (int64_t i = full ? top_k - 1 : chosen; i > rank; --i) ids[i] = ids[i - 1];
        ids[rank] = static_cast<int32_t>(expert);
        if (!full) ++chosen;
    }
    return runner_up;
}

}  // namespace

float route(const RouterRule& rule, const float* score, const float* bias, float* scratch, int32_t* ids,
            float* weights) {
    float* choice = scratch;
    for (int64_t e = 0; e < rule.experts; ++e) choice[e] = score[e] + bias[e];
    const float runner_up = select_top(choice, rule.experts, rule.top_k, ids);

    float sum = 0.0f;
    for (int64_t i = 0; i < rule.top_k; ++i) sum += score[ids[i]];
    const bool renormalize = rule.renormalize && rule.top_k > 1;
    for (int64_t i = 0; i < rule.top_k; ++i) {
        const float weight = renormalize ? score[ids[i]] / (sum + 1e-20f) : score[ids[i]];
        weights[i] = weight * rule.scaling_factor;
    }
    if (rule.top_k == rule.experts) return std::numeric_limits<float>::infinity();
    return choice[ids[rule.top_k - 1]] - runner_up;
}

}  // namespace waste::kernels
