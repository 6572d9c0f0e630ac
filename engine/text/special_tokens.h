// The ids above the ranks: markup that text cannot spell. 256 are reserved right above the ranks, named
// `<|reserved_token_ID|>` unless tokenizer_config.json renames them in `added_tokens_decoder`.
//
// Sizes disagree in the wild, so the rule is: an id is real if the embedding has a row for it. Reserved and
// added ids at or above `vocab_size` are left out, and a warning says which names were lost; added ids
// further up that have a row are taken. `additional_special_tokens` is not read: the releases' default would
// name ids that do not exist.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::engine {

inline constexpr int32_t kReservedTokens = 256;
inline constexpr size_t kMaxTokenizerConfigBytes = size_t{16} << 20;

/// Immutable after parsing.
class SpecialTokens {
  public:
    /// `base` is the number of ranks; `place` names tokenizer_config.json in errors.
    static Result<SpecialTokens> parse(std::string_view config_json, int32_t base, int64_t vocab_size,
                                       const std::string& place);

    std::optional<int32_t> find(std::string_view name) const;
    /// The token's name, empty if there is no such special token.
    std::string_view name(int32_t id) const;
    const std::vector<std::string>& warnings() const { return warnings_; }

  private:
    SpecialTokens() = default;

    std::map<int32_t, std::string> names_;
    std::map<std::string, int32_t, std::less<>> ids_;
    std::vector<std::string> warnings_;
};

}  // namespace waste::engine
