#include "engine/replacement.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace waste::engine {
namespace {

constexpr std::array<std::string_view, 3> kNames{"lru", "lfu", "router"};

/// The value counts layers run until the last use.
class LeastRecentlyUsed : public Replacement {
  public:
    explicit LeastRecentlyUsed(size_t keys) : last_use_(keys, kNeverUsed) {}

    void expect(std::span<const float> chances) override {
        for (size_t i = 0; i < last_use_.size(); i++) last_use_[i] = kNeverUsed + std::min(chances[i], 1.0f);
    }
    void on_layer(int64_t, int64_t) override { layers_run_++; }
    void on_use(int64_t key) override {
        last_use_[static_cast<size_t>(key)] = static_cast<float>(layers_run_);
    }
    float value(int64_t key) const override { return last_use_[static_cast<size_t>(key)]; }

  private:
    static constexpr float kNeverUsed = -2;

    std::vector<float> last_use_;  ///< from 2^24 on in steps of two, far below a token's layers
    int64_t layers_run_ = 0;
};

/// For each key the share of tokens that chose it; a token's weight halves with every half-life of tokens after it.
class Shares {
  public:
    Shares(int64_t layers, int64_t experts, double half_life_tokens)
        : experts_(experts),
          sums_(static_cast<size_t>(layers * experts)),
          weights_(static_cast<size_t>(layers), 1),
          decay_(std::exp2(-1 / half_life_tokens)) {}

    void assume(std::span<const float> shares, float weight) {
        std::fill(weights_.begin(), weights_.end(), weight);
        for (size_t i = 0; i < sums_.size(); i++) sums_[i] = shares[i] * weight;
    }
    void start(int64_t layer, int64_t tokens) {
        // Without the cut, sums would end in denormal numbers, on which arithmetic takes a hundred times as long.
        constexpr float kNothing = 1e-30f;
        const double kept = std::pow(decay_, tokens), added = (1 - kept) / (1 - decay_);
        const auto factor = static_cast<float>(kept);
        float* sums = sums_.data() + layer * experts_;
        for (int64_t e = 0; e < experts_; e++) sums[e] = sums[e] < kNothing ? 0 : sums[e] * factor;
        float& weight = weights_[static_cast<size_t>(layer)];
        weight = weight * factor + static_cast<float>(added);
        // The tokens of a block count alike: which of them chose the key is not told.
        step_ = static_cast<float>(added / static_cast<double>(tokens));
    }
    void add(int64_t key) { sums_[static_cast<size_t>(key)] += step_; }
    float sum(int64_t key) const { return sums_[static_cast<size_t>(key)]; }
    float weight(int64_t layer) const { return weights_[static_cast<size_t>(layer)]; }

  private:
    int64_t experts_;
    std::vector<float> sums_;
    std::vector<float> weights_;  ///< [layers]; at first that of one token that chose nothing
    double decay_;
    float step_ = 1;
};

/// lfu, and router where it has scores to listen to.
class ExpectedWait : public Replacement {
  public:
    ExpectedWait(int64_t layers, int64_t experts, bool scores)
        : layers_(layers),
          experts_(experts),
          recent_(layers, experts, 1),
          usual_(layers, experts, 128),
          nearness_(scores ? static_cast<size_t>(layers * experts) : 0),
          tokens_to_a_use_(static_cast<size_t>(layers * experts), 1 / kLeastChance) {}

    void expect(std::span<const float> chances) override {
        usual_.assume(chances, kExpectedWeightTokens);
        for (int64_t layer = 0; layer < layers_; layer++) estimate(layer);
    }
    void on_layer(int64_t layer, int64_t tokens) override {
        running_layer_ = layer;
        recent_.start(layer, tokens);
        usual_.start(layer, tokens);
        estimate(layer);
    }
    void on_use(int64_t key) override {
        recent_.add(key);
        usual_.add(key);
        estimate(running_layer_, key, 1);
    }
    void on_scores(std::span<const float> scores, std::span<const int32_t> chosen) override;
    float value(int64_t key) const override {
        const int64_t ahead = key / experts_ - running_layer_;
        const int64_t distance = ahead > 0 ? ahead : ahead + layers_;
        return -static_cast<float>(distance) / static_cast<float>(layers_) -
               tokens_to_a_use_[static_cast<size_t>(key)];
    }

  private:
    static constexpr float kRecentWeight = 0.25f;
    static constexpr float kLeastChance = 1e-9f;  ///< keeps values finite
    static constexpr float kExpectedWeightTokens = 32;

    void estimate(int64_t layer) { estimate(layer, layer * experts_, experts_); }
    void estimate(int64_t layer, int64_t first_key, int64_t keys) {
        const float recent = kRecentWeight / recent_.weight(layer);
        const float usual = (1 - kRecentWeight) / usual_.weight(layer);
        for (int64_t key = first_key; key < first_key + keys; key++) {
            const float chance = kLeastChance + recent * recent_.sum(key) + usual * usual_.sum(key);
            tokens_to_a_use_[static_cast<size_t>(key)] = 1 / chance;
        }
        if (nearness_.empty()) return;
        for (int64_t key = first_key; key < first_key + keys; key++) {
            tokens_to_a_use_[static_cast<size_t>(key)] /= 1 + nearness_[static_cast<size_t>(key)];
        }
    }

    int64_t layers_;
    int64_t experts_;
    Shares recent_, usual_;
    std::vector<float> nearness_;
    std::vector<float> tokens_to_a_use_;  ///< 1 / chance
    int64_t running_layer_ = 0;
};

void ExpectedWait::on_scores(std::span<const float> scores, std::span<const int32_t> chosen) {
    constexpr float kDecay = 0.5f, kMost = 4, kLeastScore = 1e-6f;
    if (nearness_.empty()) return;
    float least = std::numeric_limits<float>::max();
    for (const int32_t id : chosen) least = std::min(least, scores[static_cast<size_t>(id)]);
    const float scale = 1 / std::max(least, kLeastScore);
    float* nearness = nearness_.data() + running_layer_ * experts_;
    for (size_t e = 0; e < scores.size(); e++) {
        const float ratio = scores[e] * scale;
        nearness[e] = kDecay * nearness[e] + (1 - kDecay) * (ratio < kMost ? ratio : kMost);  // NaN: kMost
    }
    estimate(running_layer_);
}

}  // namespace

std::string_view replacement_name(ReplacementPolicy policy) {
    return kNames[static_cast<size_t>(policy)];
}

std::vector<std::string> replacement_names() {
    return {kNames.begin(), kNames.end()};
}

std::optional<ReplacementPolicy> replacement_from_name(std::string_view name) {
    for (size_t i = 0; i < kNames.size(); i++) {
        if (kNames[i] == name) return static_cast<ReplacementPolicy>(i);
    }
    return std::nullopt;
}

void Replacement::on_scores(std::span<const float>, std::span<const int32_t>) {}

std::unique_ptr<Replacement> make_replacement(ReplacementPolicy policy, int64_t layers, int64_t experts) {
    switch (policy) {
        case ReplacementPolicy::lru:
            return std::make_unique<LeastRecentlyUsed>(static_cast<size_t>(layers * experts));
        case ReplacementPolicy::lfu:
            return std::make_unique<ExpectedWait>(layers, experts, false);
        case ReplacementPolicy::router:
            return std::make_unique<ExpectedWait>(layers, experts, true);
    }
    return nullptr;
}

}  // namespace waste::engine
