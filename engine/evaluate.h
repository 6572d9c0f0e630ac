// Measuring a model: next-token distribution and perplexity.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "engine/session.h"

namespace waste::engine {

struct TokenProbability {
    int32_t id;
    float logit;
    double probability;
};

/// The `count` likeliest next tokens, likeliest first (ties: lower id).
std::vector<TokenProbability> likeliest(std::span<const float> logits, int64_t count);

/// log sum exp of the logits minus the target's, in f64: nats.
double negative_log_likelihood(std::span<const float> logits, int32_t target);

/// Perplexity over consecutive windows. Window i holds the ids [i stride, i stride + window), runs from an
/// empty state without BOS, and scores its tokens except the first and those an earlier window scored. What
/// follows the last full window is dropped. With stride = window each token but a window's first is scored
/// once.
struct PerplexityOptions {
    int64_t window = 512;
    int64_t stride = 512;      ///< 1 .. window
    int64_t most_windows = 0;  ///< 0: all
};

struct Perplexity {
    std::vector<double> window_nll;  ///< sum of negative log likelihoods of each window, nats
    int64_t scored_tokens;
    double loss;  ///< nats a token
    double perplexity;
};

/// `on_window(done, total)` returning false stops with ErrorKind::interrupted. `session` is cleared and used;
/// its context must hold a window.
Result<Perplexity> measure_perplexity(Session& session, std::span<const int32_t> ids,
                                      const PerplexityOptions& options,
                                      const std::function<bool(int64_t, int64_t)>& on_window);

}  // namespace waste::engine
