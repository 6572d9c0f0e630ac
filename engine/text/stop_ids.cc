#include "engine/text/stop_ids.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

namespace waste::engine {
namespace {

using nlohmann::json;

Result<int64_t> parse_id(const json& value, const std::string& place) {
    // A count beyond int64 stays unsigned in the parser and would wrap.
    const bool fits = value.is_number_integer() &&
                      !(value.is_number_unsigned() &&
                        value.get<uint64_t>() > static_cast<uint64_t>(std::numeric_limits<int64_t>::max()));
    if (!fits)
        return fail(ErrorKind::corrupt, place, "eos_token_id is neither a token id nor a list of them");
    return value.get<int64_t>();
}

Result<std::vector<int64_t>> parse_generation_config(std::string_view text, const std::string& place) {
    std::vector<int64_t> ids;
    if (text.empty()) return ids;
    const json config = json::parse(text, nullptr, false);
    if (!config.is_object()) return fail(ErrorKind::corrupt, place, "not a JSON object in UTF-8");
    const auto eos = config.find("eos_token_id");
    if (eos == config.end() || eos->is_null()) return ids;
    const json list = eos->is_array() ? *eos : json::array({*eos});
    for (const json& value : list) {
        const auto id = parse_id(value, place);
        if (!id) return pass(id);
        ids.push_back(*id);
    }
    return ids;
}

}  // namespace

Result<std::vector<int32_t>> stop_ids(const Tokenizer* tokenizer, std::string_view generation_config_json,
                                      std::span<const int64_t> config_eos_ids, int64_t vocab_size,
                                      const std::string& place) {
    auto candidates = parse_generation_config(generation_config_json, place);
    if (!candidates) return pass(candidates);
    candidates->insert(candidates->end(), config_eos_ids.begin(), config_eos_ids.end());
    const auto eos = tokenizer ? tokenizer->special("[EOS]") : std::nullopt;
    if (eos) candidates->push_back(*eos);

    std::vector<int32_t> ids;
    for (const int64_t id : *candidates) {
        if (id < 0 || id >= vocab_size) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("end-of-text id {} is not below the vocabulary size {}", id, vocab_size));
        }
        ids.push_back(static_cast<int32_t>(id));
    }
    std::sort(ids.begin(), ids.end());
    ids.erase(std::unique(ids.begin(), ids.end()), ids.end());
    return ids;
}

}  // namespace waste::engine
