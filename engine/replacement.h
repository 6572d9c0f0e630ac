// Which resident expert is worth the least: the order in which the expert cache gives its slots up.
//
// The policies differ in what they know of the future:
//
//   lru     the one whose last use is longest ago goes first
//   lfu     the one with the longest expected time to its next use goes first. With p the chance that a token
//           chooses the key, and d the layers from the running one to the key's (1 .. layers), that time is
//           d / layers + 1 / p - 1 tokens. p = 1/4 recent + 3/4 usual: the shares of tokens that chose the key, where
//           a token's weight halves every token (recent) or every 128 (usual)
//   router  as lfu with p (1 + nearness): the key's router score over the least score chosen, at most 4, averaged
//           over tokens with the recent weights
//
// Why these, and what each is worth: docs/measurements/2026-11-30-replacement.md.
//
// Keys are layer * experts + expert with layers counted among those that have experts. All memory is taken at birth;
// no call allocates, locks or fails. One thread at a time (the cache's mutex). The choice moves time, never a result:
// which expert lies in memory does not touch what is computed with it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace waste::engine {

enum class ReplacementPolicy { lru, lfu, router };
/// As on the command line: "lru", "lfu", "router".
std::string_view replacement_name(ReplacementPolicy policy);
std::vector<std::string> replacement_names();  ///< all of them
/// What measured best: docs/measurements/2026-11-30-replacement.md.
inline constexpr ReplacementPolicy kDefaultReplacement = ReplacementPolicy::lfu;
std::optional<ReplacementPolicy> replacement_from_name(std::string_view name);

class Replacement {
  public:
    virtual ~Replacement() = default;

    /// Before the first token: each key's chance of being chosen by a token, from earlier runs [layers * experts].
    virtual void expect(std::span<const float> chances) = 0;
    /// A layer starts to run for so many tokens (decoding: 1; never 0). Comes before its keys are used and before room
    /// is made for them.
    virtual void on_layer(int64_t layer, int64_t tokens) = 0;
    /// The router chose it for a token of the running layer, whether it was resident or not. In a block of tokens:
    /// once for each token that chose it.
    virtual void on_use(int64_t key) = 0;
    /// Router scores of the running layer's experts for one token, and which it chose. Only `router` listens; of a
    /// block the last token's are enough.
    virtual void on_scores(std::span<const float> scores, std::span<const int32_t> chosen);
    /// Comparable between keys until the next call of another method; higher stays. Never NaN.
    virtual float value(int64_t key) const = 0;
};

/// Memory: 4 bytes a key for lru, 12 for lfu, 16 for router. Time: a pass over the layer's keys in on_layer() (lfu,
/// router) and in on_scores() (router); the rest is a handful of operations.
std::unique_ptr<Replacement> make_replacement(ReplacementPolicy policy, int64_t layers, int64_t experts);

}  // namespace waste::engine
