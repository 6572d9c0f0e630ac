// Which resident expert is worth the least: the order in which the expert cache gives its slots up.
//
// A layer needs its experts again exactly one token after it last ran, so all experts of a model wait equally long for
// their next chance, and the one to evict is the one that is least likely to be chosen. The policies differ in what
// they take for that likelihood: `lru` how recently it was chosen, `lfu` how often of late.
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

enum class ReplacementPolicy { lru, lfu };
inline constexpr ReplacementPolicy kDefaultReplacement = ReplacementPolicy::lfu;
std::string_view replacement_name(ReplacementPolicy policy);  ///< as on the command line: "lru", "lfu"
std::vector<std::string> replacement_names();                 ///< all of them
std::optional<ReplacementPolicy> replacement_from_name(std::string_view name);

class Replacement {
  public:
    virtual ~Replacement() = default;

    /// The router chose it for a token, whether it was resident or not. In a block of tokens: once for each token
    /// that chose it.
    virtual void on_use(int64_t key) = 0;
    /// A token has passed all layers. After a block: once for each of its tokens.
    virtual void on_token() = 0;
    /// Comparable between keys at the same moment only; higher stays. Never NaN; -inf: never used. A key's value
    /// changes only when the key is used, so a victim search may keep the values it has read.
    virtual float value(int64_t key) const = 0;
};

/// Memory: 4 bytes a key.
std::unique_ptr<Replacement> make_replacement(ReplacementPolicy policy, int64_t layers, int64_t experts);

}  // namespace waste::engine
