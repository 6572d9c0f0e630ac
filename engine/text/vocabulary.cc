#include "engine/text/vocabulary.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <utility>

#include "engine/text/base64.h"

namespace waste::engine {
namespace {

/// A line of the file, decoded.
struct RankedToken {
    int64_t rank;
    size_t line;  ///< from 1
    size_t begin;
    size_t length;
};

struct RankedTokens {
    std::vector<char> storage;
    std::vector<RankedToken> tokens;  ///< in file order
};

Result<int64_t> parse_rank(std::string_view text, int64_t vocab_size, const std::string& place) {
    int64_t rank = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), rank);
    if (error != std::errc() || end != text.data() + text.size() || rank < 0) {
        return fail(ErrorKind::corrupt, place, "the rank is not a whole number");
    }
    if (rank >= vocab_size) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("rank {} has no row in an embedding of {} rows", rank, vocab_size));
    }
    return rank;
}

Result<std::string> parse_token(std::string_view text, const std::string& place) {
    auto token = decode_base64(text);
    if (!token) return fail(ErrorKind::corrupt, place, "the token is not base64");
    if (token->empty()) return fail(ErrorKind::corrupt, place, "the token is empty");
    if (token->size() > kMaxTokenBytes) {
        return fail(
            ErrorKind::unsupported, place,
            fmt::format("a token of {} bytes; at most {} are supported", token->size(), kMaxTokenBytes));
    }
    return std::move(*token);
}

Result<RankedTokens> parse_lines(std::string_view file, int64_t vocab_size, const std::string& place) {
    RankedTokens parsed;
    for (size_t at = 0, number = 1; at < file.size(); ++number) {
        const size_t end = std::min(file.find('\n', at), file.size());
        std::string_view line = file.substr(at, end - at);
        at = end + 1;
        if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
        if (line.empty()) continue;

        const std::string line_place = fmt::format("{}: line {}", place, number);
        const size_t space = line.find(' ');
        if (space == std::string_view::npos) {
            return fail(ErrorKind::corrupt, line_place, "expected a token in base64, a space and its rank");
        }
        const auto token = parse_token(line.substr(0, space), line_place);
        if (!token) return pass(token);
        const auto rank = parse_rank(line.substr(space + 1), vocab_size, line_place);
        if (!rank) return pass(rank);
        parsed.tokens.push_back({*rank, number, parsed.storage.size(), token->size()});
        parsed.storage.insert(parsed.storage.end(), token->begin(), token->end());
    }
    return parsed;
}

Error damaged_line(const std::string& place, size_t line, std::string message) {
    return Error{ErrorKind::corrupt, fmt::format("{}: line {}", place, line), std::move(message)};
}

}  // namespace

Result<Vocabulary> Vocabulary::parse(std::string_view rank_file, int64_t vocab_size,
                                     const std::string& place) {
    if (rank_file.empty()) return fail(ErrorKind::corrupt, place, "the file is empty");
    if (rank_file.size() > kMaxRankFileBytes) {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("{} bytes; at most {} are supported", rank_file.size(), kMaxRankFileBytes));
    }
    auto parsed = parse_lines(rank_file, vocab_size, place);
    if (!parsed) return pass(parsed);

    Vocabulary vocabulary;
    vocabulary.storage_ = std::move(parsed->storage);
    const size_t count = parsed->tokens.size();
    vocabulary.tokens_.resize(count);
    vocabulary.ids_.reserve(count);
    for (const RankedToken& token : parsed->tokens) {
        const auto rank = static_cast<size_t>(token.rank);
        if (rank >= count) {
            return tl::unexpected(
                damaged_line(place, token.line,
                             fmt::format("rank {} in a file of {} tokens: ranks must run from 0 without gaps",
                                         rank, count)));
        }
        if (!vocabulary.tokens_[rank].empty()) {
            return tl::unexpected(
                damaged_line(place, token.line, fmt::format("rank {} is there twice", rank)));
        }
        const std::string_view bytes(vocabulary.storage_.data() + token.begin, token.length);
        vocabulary.tokens_[rank] = bytes;
        if (!vocabulary.ids_.emplace(bytes, static_cast<int32_t>(rank)).second) {
            return tl::unexpected(
                damaged_line(place, token.line, fmt::format("the token of rank {} is there twice", rank)));
        }
        vocabulary.longest_token_bytes_ = std::max(vocabulary.longest_token_bytes_, token.length);
    }
    for (int byte = 0; byte < 256; ++byte) {
        const char character = static_cast<char>(byte);
        if (!vocabulary.find({&character, 1})) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("no token for the single byte 0x{:02x}", byte));
        }
    }
    return vocabulary;
}

std::optional<int32_t> Vocabulary::find(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

}  // namespace waste::engine
