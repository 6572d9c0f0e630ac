// K3's markup read back from tokens: which elements open and close, and the text between.
//
// Structure is told by token id, never by text, so nothing that was written as text is taken for markup. Any stream of
// tokens reads as something.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace waste::engine {

struct XtmlAttribute {
    std::string name;
    std::string value;  ///< unescaped

    bool operator==(const XtmlAttribute&) const = default;
};

struct XtmlEvent {
    enum class Kind : uint8_t {
        text,    ///< whole characters between tags; may be none
        open,    ///< an element's opening tag is complete
        close,   ///< a closing tag is complete
        message  ///< <|end_of_msg|>
    };
    Kind kind = Kind::text;
    std::string text{};  ///< or the tag's name
    std::vector<XtmlAttribute> attributes{};

    /// An attribute's value, empty where there is none of that name.
    std::string_view attribute(std::string_view name) const;
};

/// One thread. The tokenizer must outlive it.
class XtmlReader {
  public:
    /// Of a tag's text no more than this counts.
    static constexpr size_t kMaxTagBytes = 4096;

    explicit XtmlReader(const Tokenizer& tokenizer);

    /// What the token completes. A character or a tag that is not complete gives an empty text.
    XtmlEvent push(int32_t id);
    /// The end of a character that never was completed.
    std::string finish() { return utf8_.finish(); }

    enum class Tag : uint8_t { none, opening, closing };
    /// The kind of tag that the tokens so far end inside of, and its text.
    Tag tag() const { return tag_; }
    std::string_view tag_text() const { return tag_text_; }

  private:
    const Tokenizer& tokenizer_;
    int32_t open_, close_, sep_, end_;
    Tag tag_ = Tag::none;
    std::string tag_text_;
    Utf8Stream utf8_;
};

}  // namespace waste::engine
