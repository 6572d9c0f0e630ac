// UTF-8, strictly: no surrogates, no overlong forms, nothing above U+10FFFF.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace waste::engine {

/// One step through text. `bytes` is what to skip: the character, or for invalid text the longest start of a
/// character that cannot be completed (at least one byte), which is replaced by one U+FFFD.
struct Utf8Step {
    enum class Kind : uint8_t { character, invalid, truncated };
    Kind kind;
    uint8_t bytes;
    char32_t character;  ///< meaningful for Kind::character only
};

/// Reads the start of `rest`, which is not empty. `truncated`: a valid start, and the text ends inside it.
Utf8Step next_utf8(std::string_view rest);

/// Offset of the first byte that is not part of a valid character; nothing where the text is valid.
std::optional<size_t> first_invalid_utf8(std::string_view text);

/// Turns a stream of bytes, cut anywhere, into whole characters: tokens end inside characters, a terminal
/// must not see halves. Joining everything returned gives the same text wherever the stream was cut. One
/// thread.
class Utf8Stream {
  public:
    /// The characters completed by `bytes`; invalid bytes become U+FFFD, an incomplete end waits for more.
    std::string push(std::string_view bytes);
    /// What is left at the end: nothing, or U+FFFD for a character that never was completed.
    std::string finish();

  private:
    std::string held_;  ///< the start of a character, at most 3 bytes
};

}  // namespace waste::engine
