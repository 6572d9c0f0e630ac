#include "engine/replacement.h"

#include <array>
#include <cmath>
#include <limits>
#include <vector>

namespace waste::engine {
namespace {

constexpr std::array<std::string_view, 2> kNames{"lru", "lfu"};

constexpr float kNeverUsed = -std::numeric_limits<float>::infinity();

/// The value is the token of the last use.
class LeastRecentlyUsed : public Replacement {
  public:
    explicit LeastRecentlyUsed(size_t keys) : last_use_(keys, kNeverUsed) {}

    void on_use(int64_t key) override { last_use_[static_cast<size_t>(key)] = static_cast<float>(token_); }
    void on_token() override { token_++; }
    float value(int64_t key) const override { return last_use_[static_cast<size_t>(key)]; }

  private:
    std::vector<float> last_use_;  ///< exact up to 2^24 tokens, and then in steps of two
    int64_t token_ = 0;
};

/// The value is the count of uses, each halved every kHalfLifeTokens: sum 2^(-(now - then) / half life). What is
/// kept is log2 of it plus now / half life, which time does not change.
class LeastFrequentlyUsed : public Replacement {
  public:
    explicit LeastFrequentlyUsed(size_t keys) : log_count_(keys, kNeverUsed) {}

    void on_use(int64_t key) override {
        float& kept = log_count_[static_cast<size_t>(key)];
        kept = now_ + std::log2(1.0f + std::exp2(kept - now_));
    }
    void on_token() override { now_ = static_cast<float>(static_cast<double>(++token_) / kHalfLifeTokens); }
    float value(int64_t key) const override { return log_count_[static_cast<size_t>(key)]; }

  private:
    static constexpr double kHalfLifeTokens = 128;

    std::vector<float> log_count_;
    int64_t token_ = 0;
    float now_ = 0;  ///< in half lives
};

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

std::unique_ptr<Replacement> make_replacement(ReplacementPolicy policy, int64_t layers, int64_t experts) {
    const auto keys = static_cast<size_t>(layers * experts);
    switch (policy) {
        case ReplacementPolicy::lru:
            return std::make_unique<LeastRecentlyUsed>(keys);
        case ReplacementPolicy::lfu:
            return std::make_unique<LeastFrequentlyUsed>(keys);
    }
    return nullptr;
}

}  // namespace waste::engine
