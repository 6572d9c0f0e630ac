// From text to the pieces that are merged one by one. Two steps, both of which decide ids:
//
//   1. Cuts. Text is cut after every 400,000 characters; each of those chunks is cut again where a run of
//   white
//      space, or of anything else, exceeds 25,000 characters (after each 25,000). A slice is tokenized alone.
//      As in the release's tokenization code, where a character is white space if Python's str.isspace says
//      so: Unicode White_Space and the four separators U+001C to U+001F.
//   2. Pieces. One alternation, tried in order at each position of a slice; every character belongs to a
//   piece:
//        Han characters (by script, not by script extension)
//        [one char, no CR LF letter number] upper-like* lower-like+ [contraction]     Han excluded
//        [one char, no CR LF letter number] upper-like+ lower-like* [contraction]     Han excluded
//        1 to 3 numbers
//        [space] characters that are not space, letter or number, then CR LF
//        space that ends in CR LF;  space not followed by non-space;  space
//      Here space is Unicode White_Space, without U+001C to U+001F.
#pragma once

#include <cstddef>
#include <memory>
#include <string_view>
#include <vector>

#include "container/result.h"

namespace waste::engine {

inline constexpr size_t kChunkCharacters = 400'000;
inline constexpr size_t kRunCharacters = 25'000;

/// Step 1. `text` is valid UTF-8; the slices join to it.
std::vector<std::string_view> cut_slices(std::string_view text);

/// Immutable after creation: any number of threads may split.
class Pretokenizer {
  public:
    static Result<Pretokenizer> create();

    /// Step 2: replaces `pieces` by the pieces of `slice`, valid UTF-8. They join to it.
    Result<void> split(std::string_view slice, std::vector<std::string_view>& pieces) const;

  private:
    struct Program;
    explicit Pretokenizer(std::shared_ptr<const Program> program) : program_(std::move(program)) {}

    std::shared_ptr<const Program> program_;  ///< the compiled pattern
};

}  // namespace waste::engine
