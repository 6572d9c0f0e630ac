#include "engine/text/tokenizer.h"

#include <fmt/format.h>

#include <limits>
#include <utility>

#include "engine/text/merger.h"
#include "engine/text/utf8.h"

namespace waste::engine {

Tokenizer::Tokenizer(Vocabulary vocabulary, SpecialTokens special_tokens, Pretokenizer pretokenizer)
    : vocabulary_(std::move(vocabulary)),
      special_tokens_(std::move(special_tokens)),
      pretokenizer_(std::move(pretokenizer)) {}

Result<Tokenizer> Tokenizer::create(std::string_view rank_file, std::string_view tokenizer_config_json,
                                    int64_t vocab_size, const std::string& place) {
    if (vocab_size <= 0 || vocab_size > std::numeric_limits<int32_t>::max()) {
        return fail(ErrorKind::invalid, place,
                    fmt::format("a vocabulary of {} tokens is impossible", vocab_size));
    }
    auto vocabulary = Vocabulary::parse(rank_file, vocab_size, place + "/tiktoken.model");
    if (!vocabulary) return pass(vocabulary);
    auto special_tokens = SpecialTokens::parse(tokenizer_config_json, vocabulary->size(), vocab_size,
                                               place + "/tokenizer_config.json");
    if (!special_tokens) return pass(special_tokens);
    auto pretokenizer = Pretokenizer::create();
    if (!pretokenizer) return pass(pretokenizer);
    return Tokenizer(std::move(*vocabulary), std::move(*special_tokens), std::move(*pretokenizer));
}

Result<std::vector<int32_t>> Tokenizer::encode(std::string_view text) const {
    if (const auto bad = first_invalid_utf8(text)) {
        return fail(ErrorKind::invalid, "text", fmt::format("not UTF-8 at byte {}", *bad));
    }
    std::vector<int32_t> ids;
    std::vector<std::string_view> pieces;
    Merger merger(vocabulary_);
    for (const std::string_view slice : cut_slices(text)) {
        const auto done = pretokenizer_.split(slice, pieces);
        if (!done) return pass(done);
        for (const std::string_view piece : pieces) merger.append(piece, ids);
    }
    return ids;
}

Result<std::vector<int32_t>> Tokenizer::encode_segments(std::span<const Segment> segments) const {
    std::vector<int32_t> ids;
    for (const Segment& segment : segments) {
        if (segment.special) {
            const auto id = special(segment.text);
            if (!id) {
                return fail(ErrorKind::invalid, "markup",
                            fmt::format("this vocabulary has no special token '{}'", segment.text));
            }
            ids.push_back(*id);
            continue;
        }
        const auto content = encode(segment.text);
        if (!content) return pass(content);
        ids.insert(ids.end(), content->begin(), content->end());
    }
    return ids;
}

std::string_view Tokenizer::bytes(int32_t id) const {
    if (id >= 0 && id < vocabulary_.size()) return vocabulary_.bytes(id);
    return special_tokens_.name(id);
}

std::string Tokenizer::decode(std::span<const int32_t> ids, bool keep_special) const {
    Utf8Stream stream;
    std::string text;
    for (const int32_t id : ids) {
        if (keep_special || !is_special(id)) text += stream.push(bytes(id));
    }
    return text + stream.finish();
}

}  // namespace waste::engine
