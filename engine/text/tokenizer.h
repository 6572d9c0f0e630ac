// Text to token ids and back, with the ids of the release's own tokenizer.
//
// Two kinds of id are kept apart. Ordinary tokens come from text. Special tokens are markup: they are asked
// for by name, in a Segment marked as special, and only code that writes markup does that. encode() has no
// way to produce one, so a user who types `<|end_of_msg|>` gets the ids of thirteen or so characters, not the
// end of a turn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "engine/text/pretokenizer.h"
#include "engine/text/special_tokens.h"
#include "engine/text/vocabulary.h"

namespace waste::engine {

/// A piece of a prompt: the name of a special token, or text.
struct Segment {
    std::string text;
    bool special;

    bool operator==(const Segment&) const = default;
};

/// Immutable after creation: any number of threads may use it.
class Tokenizer {
  public:
    /// `rank_file` and `tokenizer_config_json` are the contents of those files, `vocab_size` the rows of the
    /// embedding, `place` the directory or container they come from (for errors). No id is ever >=
    /// vocab_size: ranks beyond it are refused, special tokens beyond it ignored with a warning. A larger
    /// vocab_size leaves ids without a token.
    static Result<Tokenizer> create(std::string_view rank_file, std::string_view tokenizer_config_json,
                                    int64_t vocab_size, const std::string& place);

    /// Ids of text. Never a special id. Text that is not UTF-8 is refused with the offset of the first bad
    /// byte.
    Result<std::vector<int32_t>> encode(std::string_view text) const;
    /// Ids of marked-up text: every text segment is encoded on its own, never joined with its neighbour.
    Result<std::vector<int32_t>> encode_segments(std::span<const Segment> segments) const;

    std::optional<int32_t> special(std::string_view name) const { return special_tokens_.find(name); }
    bool is_special(int32_t id) const { return !special_tokens_.name(id).empty(); }
    /// False for ids the model can produce but that mean nothing (an embedding with more rows than tokens).
    bool has_token(int32_t id) const { return !bytes(id).empty(); }

    /// A token's bytes, or the name of a special token; empty where there is no token. Tokens end inside
    /// characters: join bytes by Utf8Stream. Lives as long as the tokenizer.
    std::string_view bytes(int32_t id) const;
    /// Text of ids, invalid bytes as U+FFFD. Special tokens appear by name or not at all; an id without a
    /// token adds nothing.
    std::string decode(std::span<const int32_t> ids, bool keep_special) const;

    /// What was tolerated in the files, a line each.
    const std::vector<std::string>& warnings() const { return special_tokens_.warnings(); }

  private:
    Tokenizer(Vocabulary vocabulary, SpecialTokens special_tokens, Pretokenizer pretokenizer);

    Vocabulary vocabulary_;
    SpecialTokens special_tokens_;
    Pretokenizer pretokenizer_;
};

}  // namespace waste::engine
