// Expert choice, one token, from the scores sigmoid(logits).
//
//   choice = score + bias                                              the bias chooses, it never weighs
//   ids   = top_k of choice, best first; ties go to the lower index
//   w     = score[ids];  w /= sum(w) + 1e-20 if renormalize and top_k > 1;  w *= scaling_factor
//
// Source: the release's modeling_kimi_linear.py (KimiMoEGate, noaux_tc), read 2026-11. f32 throughout.
// NaN scores lose against every number, so ids are always distinct and in range.
#pragma once

#include <cstdint>

namespace waste::kernels {

struct RouterRule {
    int64_t experts;
    int64_t top_k;  ///< 1 .. experts
    bool renormalize;
    float scaling_factor;
};

/// score, bias, scratch [experts]; ids, weights [top_k]. Returns the margin: the choice score
/// of rank top_k minus that of the next, or +inf where all experts are chosen.
float route(const RouterRule& rule, const float* score, const float* bias, float* scratch, int32_t* ids,
            float* weights);

}  // namespace waste::kernels
