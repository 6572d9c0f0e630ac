// What the weights of a synthetic model are, so that every layer's activations stay near 1 and logits are ordinary.
//
//   matrices          mean 0, deviation 1/sqrt(inputs): a normed input gives outputs of RMS 1. The router's is 1.5 times
//                     that, k_absorb's follows the inputs of the kv_b_proj that it is the transpose of
//   embedding         deviation 1
//   norms             1
//   convolutions      taps of deviation 0.35, 0.8 added to the newest
//   A_log, dt_bias    bounded gate: exp(A_log) uniform in 0.5..2.5, dt_bias uniform in -5.5..1; softplus gate: exp(A_log)
//                     uniform in 1..16, softplus(dt_bias) log-uniform in 0.001..0.1. Either way decays spread over (0, 1)
//   residual mixes    deviation 1.2/sqrt(hidden): scores near 1
//   router bias       expert_bias()
//
// Each of the sub-layers adds about 1 to a residual's mean square, so its RMS grows like sqrt(1 + 2 layers), which the
// norms take out again.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "engine/config.h"
#include "engine/tensor_list.h"

namespace waste::engine {

/// Standard deviation of a matrix or embedding.
double synth_deviation(const TensorSpec& spec);

struct SynthVectorRule {
    const ModelConfig& config;
    uint64_t seed;
    double skew;
};

/// The values of a tensor whose role is `vector`.
std::vector<float> synth_vector(const SynthVectorRule& rule, const TensorSpec& spec);

/// Correction biases that give experts, in random order, popularities falling like Zipf's law: the expert of rank
/// r = 1, 2, … is chosen by a share
///     p_r = min(1, c / r^skew),   c such that all shares add up to top_k
/// of the tokens. Skew 0 is a bias of 0 everywhere: each is chosen by top_k/experts of them.
///
/// With F the distribution of a score sigmoid(1.5 N(0, 1)) and t = F^-1(1 - top_k/experts), the usual threshold of the
/// choice, the bias is t - F^-1(1 - p_r). Shares hold on average over models and as far as scores are independent.
std::vector<float> expert_bias(int64_t experts, int64_t top_k, double skew, uint64_t stream);

/// The shares p_r that expert_bias() aims at, by rank.
std::vector<double> expert_shares(int64_t experts, int64_t top_k, double skew);

}  // namespace waste::engine
