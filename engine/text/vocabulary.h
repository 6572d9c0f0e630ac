// The ordinary tokens: tiktoken.model, lines "base64 rank". A token's rank is its id and its merge priority.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "container/result.h"

namespace waste::engine {

inline constexpr size_t kMaxRankFileBytes = size_t{64} << 20;  ///< the releases' file has 2.8 MB
inline constexpr size_t kMaxTokenBytes = 4096;

/// Immutable after parsing, so any number of threads may use it.
class Vocabulary {
  public:
    /// Refuses a file that is not exactly ranks 0 to n-1, each once, with distinct tokens that include all
    /// 256 single bytes, and n <= `vocab_size` (the rows of the embedding). `place` names the file in errors.
    static Result<Vocabulary> parse(std::string_view rank_file, int64_t vocab_size, const std::string& place);

    Vocabulary(Vocabulary&&) = default;
    Vocabulary& operator=(Vocabulary&&) = default;
    Vocabulary(const Vocabulary&) = delete;
    Vocabulary& operator=(const Vocabulary&) = delete;

    int32_t size() const { return static_cast<int32_t>(tokens_.size()); }
    /// REQUIRES 0 <= id < size(). Lives as long as the vocabulary.
    std::string_view bytes(int32_t id) const { return tokens_[static_cast<size_t>(id)]; }
    std::optional<int32_t> find(std::string_view token) const;
    size_t longest_token_bytes() const { return longest_token_bytes_; }

  private:
    Vocabulary() = default;

    std::vector<char> storage_;             ///< the bytes of all tokens; everything below points into it
    std::vector<std::string_view> tokens_;  ///< by id
    std::unordered_map<std::string_view, int32_t> ids_;
    size_t longest_token_bytes_ = 0;
};

}  // namespace waste::engine
