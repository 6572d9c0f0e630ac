#include "engine/text/special_tokens.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <utility>

namespace waste::engine {
namespace {

using nlohmann::json;

/// A token id as a key of `added_tokens_decoder`: decimal, nothing around it.
std::optional<int64_t> parse_id(std::string_view text) {
    int64_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error != std::errc() || end != text.data() + text.size() || id < 0) return std::nullopt;
    if (text.size() > 1 && text.front() == '0') return std::nullopt;
    return id;
}

/// The names in `added_tokens_decoder`, by id. Empty if the config has none.
Result<std::map<int64_t, std::string>> parse_added_tokens(std::string_view config_json,
                                                          const std::string& place) {
    if (config_json.size() > kMaxTokenizerConfigBytes) {
        return fail(
            ErrorKind::unsupported, place,
            fmt::format("{} bytes; at most {} are supported", config_json.size(), kMaxTokenizerConfigBytes));
    }
    const json config = json::parse(config_json, nullptr, false);
    if (!config.is_object()) return fail(ErrorKind::corrupt, place, "not a JSON object in UTF-8");
    std::map<int64_t, std::string> names;
    const auto added = config.find("added_tokens_decoder");
    if (added == config.end()) return names;
    const std::string added_place = place + ": added_tokens_decoder";
    if (!added->is_object()) return fail(ErrorKind::corrupt, added_place, "not a JSON object");
    for (const auto& [key, token] : added->items()) {
        const auto id = parse_id(key);
        if (!id) return fail(ErrorKind::corrupt, added_place, fmt::format("'{}' is not a token id", key));
        const auto content = token.is_object() ? token.find("content") : token.end();
        if (!token.is_object() || content == token.end() || !content->is_string()) {
            return fail(ErrorKind::corrupt, added_place, fmt::format("id {} has no text in 'content'", *id));
        }
        auto name = content->get<std::string>();
        if (name.empty())
            return fail(ErrorKind::corrupt, added_place, fmt::format("id {} has an empty name", *id));
        names.emplace(*id, std::move(name));
    }
    return names;
}

}  // namespace

Result<SpecialTokens> SpecialTokens::parse(std::string_view config_json, int32_t base, int64_t vocab_size,
                                           const std::string& place) {
    const auto added = parse_added_tokens(config_json, place);
    if (!added) return pass(added);

    SpecialTokens special;
    const int64_t reserved_end = std::min<int64_t>(int64_t{base} + kReservedTokens, vocab_size);
    for (int64_t id = base; id < reserved_end; ++id) {
        special.names_.emplace(static_cast<int32_t>(id), fmt::format("<|reserved_token_{}|>", id));
    }
    int64_t ignored = 0;
    for (const auto& [id, name] : *added) {
        if (id < base) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("added_tokens_decoder names id {}, which is an ordinary token", id));
        }
        if (id < vocab_size) {
            special.names_.insert_or_assign(static_cast<int32_t>(id), name);
        } else if (++ignored == 1) {
            special.warnings_.push_back(fmt::format("{}: id {} ('{}') is ignored: the embedding has {} rows",
                                                    place, id, name, vocab_size));
        }
    }
    if (ignored > 1) {
        special.warnings_.push_back(
            fmt::format("{}: {} ids in all are ignored for that reason", place, ignored));
    }
    for (const auto& [id, name] : special.names_) {
        const auto [other, is_new] = special.ids_.emplace(name, id);
        if (!is_new) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("ids {} and {} have the same name '{}'", other->second, id, name));
        }
    }
    return special;
}

std::optional<int32_t> SpecialTokens::find(std::string_view name) const {
    const auto found = ids_.find(name);
    if (found == ids_.end()) return std::nullopt;
    return found->second;
}

std::string_view SpecialTokens::name(int32_t id) const {
    const auto found = names_.find(id);
    return found == names_.end() ? std::string_view() : std::string_view(found->second);
}

}  // namespace waste::engine
