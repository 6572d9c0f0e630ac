#include "engine/synth/weights.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "engine/synth/random.h"

namespace waste::engine {
namespace {

constexpr double kRouterGain = 1.5;
constexpr double kMixGain = 1.2;

/// x with P(N(0, 1) <= x) = p, within the range where a sigmoid of it can be told from 0 and 1.
double normal_quantile(double p) {
    double low = -40, high = 40;
    for (int i = 0; i < 100; i++) {
        const double middle = (low + high) / 2;
        (0.5 * std::erfc(-middle / std::sqrt(2.0)) < p ? low : high) = middle;
    }
    return low;
}

/// F^-1 of expert_bias().
double score_quantile(double p) {
    return 1 / (1 + std::exp(-kRouterGain * normal_quantile(p)));
}

float a_log(const ModelConfig& config, RandomWords& words) {
    const double a = config.gate_lower_bound ? words.uniform(0.5, 2.5) : words.uniform(1, 16);
    return static_cast<float>(std::log(a));
}

float dt_bias(const ModelConfig& config, RandomWords& words) {
    if (config.gate_lower_bound) return static_cast<float>(words.uniform(-5.5, 1.0));
    const double dt = std::exp(words.uniform(std::log(1e-3), std::log(1e-1)));
    return static_cast<float>(std::log(std::expm1(dt)));  // softplus, backwards
}

size_t count_of(const TensorSpec& spec) {
    size_t count = 1;
    for (const int64_t dimension : spec.shape) count *= static_cast<size_t>(dimension);
    return count;
}

template <typename Make>
std::vector<float> filled(const TensorSpec& spec, const Make& make) {
    std::vector<float> out(count_of(spec));
    for (size_t i = 0; i < out.size(); i++) out[i] = make(i);
    return out;
}

}  // namespace

double synth_deviation(const TensorSpec& spec) {
    if (spec.role == Role::embedding) return 1.0;
    const int64_t inputs = spec.role == Role::k_absorb ? spec.shape[1] : spec.shape.back();
    return (spec.role == Role::router ? kRouterGain : 1.0) / std::sqrt(static_cast<double>(inputs));
}

std::vector<float> synth_vector(const SynthVectorRule& rule, const TensorSpec& spec) {
    const ModelConfig& config = rule.config;
    const uint64_t stream = stream_of(rule.seed, spec.name);
    RandomWords words(stream);
    if (spec.name.ends_with("e_score_correction_bias")) {
        return expert_bias(config.num_experts, config.num_experts_per_token, rule.skew, stream);
    }
    if (spec.name.ends_with("A_log")) return filled(spec, [&](size_t) { return a_log(config, words); });
    if (spec.name.ends_with("dt_bias")) return filled(spec, [&](size_t) { return dt_bias(config, words); });
    if (spec.name.ends_with("conv1d")) {
        const auto taps = static_cast<size_t>(spec.shape.back());
        return filled(spec, [&](size_t i) {
            return static_cast<float>(0.35 * words.triangular() + (i % taps == taps - 1 ? 0.8 : 0.0));
        });
    }
    if (spec.name.ends_with("res_proj")) {
        const double deviation = kMixGain / std::sqrt(static_cast<double>(spec.shape.back()));
        return filled(spec, [&](size_t) { return static_cast<float>(deviation * words.triangular()); });
    }
    return std::vector<float>(count_of(spec), 1.0f);
}

std::vector<double> expert_shares(int64_t experts, int64_t top_k, double skew) {
    std::vector<double> weight(static_cast<size_t>(experts));
    for (size_t i = 0; i < weight.size(); i++) weight[i] = std::pow(static_cast<double>(i + 1), -skew);
    std::vector<double> rest(weight.size() + 1, 0.0);  // of this rank and those behind it
    for (size_t i = weight.size(); i > 0; i--) rest[i - 1] = rest[i] + weight[i - 1];
    // Ranks before `full` are chosen always; the others share what is left in proportion.
    size_t full = 0;
    const auto left = [&] { return static_cast<double>(top_k) - static_cast<double>(full); };
    while (full < weight.size() && weight[full] * left() >= rest[full]) full++;
    const double factor = full < weight.size() ? left() / rest[full] : 0.0;
    for (size_t i = 0; i < weight.size(); i++) weight[i] = i < full ? 1.0 : weight[i] * factor;
    return weight;
}

std::vector<float> expert_bias(int64_t experts, int64_t top_k, double skew, uint64_t stream) {
    std::vector<float> bias(static_cast<size_t>(experts), 0.0f);
    if (skew == 0) return bias;
    const double threshold = score_quantile(1 - static_cast<double>(top_k) / static_cast<double>(experts));
    const std::vector<double> shares = expert_shares(experts, top_k, skew);
    for (size_t i = 0; i < bias.size(); i++) {
        bias[i] = static_cast<float>(threshold - score_quantile(1 - shares[i]));
    }
    RandomWords words(stream);
    for (size_t i = bias.size(); i > 1; i--) std::swap(bias[i - 1], bias[words.next() % i]);
    return bias;
}

}  // namespace waste::engine
