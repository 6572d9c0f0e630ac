#include "engine/session_about.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <nlohmann/json.hpp>
#include <optional>

namespace waste::engine {
namespace {

using Json = nlohmann::ordered_json;

/// Far above any context, and few enough that their tokens may be allocated on a file's word.
constexpr int64_t kMostPositions = int64_t{1} << 26;
constexpr int64_t kLatestTime = int64_t{1} << 40;
constexpr std::array kRoles = {TurnRole::system, TurnRole::user, TurnRole::assistant, TurnRole::tool};

/// Typed values of a JSON object. Remembers the first that is missing or wrong; every read then returns a harmless
/// value, so that a caller checks once.
class Values {
  public:
    Values(const Json& object, std::string& wrong) : object_(object), wrong_(wrong) {}

    int64_t whole(const char* key, int64_t most) {
        const Json* value = find(key);
        if (value == nullptr || !value->is_number_unsigned() ||
            value->get<uint64_t>() > static_cast<uint64_t>(most)) {
            return refuse(key), 0;
        }
        return value->get<int64_t>();
    }
    uint64_t word(const char* key) {
        const Json* value = find(key);
        if (value == nullptr || !value->is_number_unsigned()) return refuse(key), 0;
        return value->get<uint64_t>();
    }
    float number(const char* key) {
        const Json* value = find(key);
        if (value == nullptr || !value->is_number()) return refuse(key), 0.0f;
        return static_cast<float>(value->get<double>());
    }
    bool flag(const char* key) {
        const Json* value = find(key);
        if (value == nullptr || !value->is_boolean()) return refuse(key), false;
        return value->get<bool>();
    }
    std::string text(const char* key) {
        const Json* value = find(key);
        if (value == nullptr || !value->is_string()) return refuse(key), std::string();
        return value->get<std::string>();
    }
    const Json& list(const char* key) {
        static const Json kEmpty = Json::array();
        const Json* value = find(key);
        if (value == nullptr || !value->is_array()) return refuse(key), kEmpty;
        return *value;
    }
    void refuse(std::string_view what) {
        if (wrong_.empty()) wrong_ = what;
    }

  private:
    const Json* find(const char* key) const {
        if (!object_.is_object()) return nullptr;
        const auto found = object_.find(key);
        return found == object_.end() ? nullptr : &*found;
    }

    const Json& object_;
    std::string& wrong_;
};

std::optional<TurnRole> role_from(std::string_view name) {
    const auto found = std::find_if(kRoles.begin(), kRoles.end(),
                                    [&](TurnRole role) { return turn_role_name(role) == name; });
    return found == kRoles.end() ? std::nullopt : std::optional(*found);
}

Json sampler_json(const SamplerOptions& sampler) {
    return {{"temperature", sampler.temperature},
            {"top_k", sampler.top_k},
            {"top_p", sampler.top_p},
            {"min_p", sampler.min_p},
            {"repeat_penalty", sampler.repeat_penalty},
            {"repeat_window", sampler.repeat_window}};
}

SamplerOptions read_sampler(const Json& object, std::string& wrong) {
    constexpr int64_t kMostTokens = int64_t{1} << 30;
    Values values(object, wrong);
    SamplerOptions sampler;
    sampler.temperature = values.number("temperature");
    sampler.top_k = static_cast<int>(values.whole("top_k", kMostTokens));
    sampler.top_p = values.number("top_p");
    sampler.min_p = values.number("min_p");
    sampler.repeat_penalty = values.number("repeat_penalty");
    sampler.repeat_window = static_cast<int>(values.whole("repeat_window", kMostTokens));
    if (wrong.empty()) {
        if (const auto valid = validate(sampler); !valid) values.refuse(valid.error().place);
    }
    return sampler;
}

void read_lists(const Json& json, SessionAbout& about, std::string& wrong) {
    Values values(json, wrong);
    for (const Json& item : values.list("turns")) {
        Values turn(item, wrong);
        const auto role = role_from(turn.text("role"));
        const int64_t begin = turn.whole("begin", about.position);
        const bool ascends = about.turns.empty() || about.turns.back().begin <= begin;
        if (!role || !ascends) return values.refuse("turns");
        about.turns.push_back({*role, begin});
    }
    for (const Json& item : values.list("seeds")) {
        Values seed(item, wrong);
        const int64_t position = seed.whole("position", about.position);
        if (!about.seeds.empty() && about.seeds.back().position >= position) return values.refuse("seeds");
        about.seeds.push_back({position, seed.word("seed")});
    }
    for (const Json& item : values.list("checkpoints")) {
        Values checkpoint(item, wrong);
        const int64_t position = checkpoint.whole("position", about.position);
        const int64_t before = about.checkpoints.empty() ? 0 : about.checkpoints.back().position;
        if (position <= before) return values.refuse("checkpoints");
        about.checkpoints.push_back({position, checkpoint.flag("at_turn"), checkpoint.flag("has_logits")});
    }
}

}  // namespace

std::string about_text(const SessionAbout& about) {
    Json json = {{"model", about.model},
                 {"saved_at", about.saved_at},
                 {"position", about.position},
                 {"has_logits", about.has_logits},
                 {"sampler", sampler_json(about.sampler)}};
    Json& turns = json["turns"] = Json::array();
    for (const Turn& turn : about.turns)
        turns.push_back({{"role", turn_role_name(turn.role)}, {"begin", turn.begin}});
    Json& seeds = json["seeds"] = Json::array();
    for (const SeedChange& change : about.seeds)
        seeds.push_back({{"position", change.position}, {"seed", change.seed}});
    Json& checkpoints = json["checkpoints"] = Json::array();
    for (const SavedCheckpoint& kept : about.checkpoints) {
        checkpoints.push_back(
            {{"position", kept.position}, {"at_turn", kept.at_turn}, {"has_logits", kept.has_logits}});
    }
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

Result<SessionAbout> parse_about(std::string_view text, const std::string& place) {
    const Json json = Json::parse(text, nullptr, false);
    if (!json.is_object()) {
        return fail(ErrorKind::corrupt, place,
                    "the description is not a JSON object; the session file is damaged");
    }
    std::string wrong;
    Values values(json, wrong);
    SessionAbout about;
    about.model = values.text("model");
    about.saved_at = values.whole("saved_at", kLatestTime);
    about.position = values.whole("position", kMostPositions);
    about.has_logits = values.flag("has_logits");
    read_lists(json, about, wrong);
    about.sampler = read_sampler(json.value("sampler", Json()), wrong);
    if (!wrong.empty()) {
        return fail(
            ErrorKind::corrupt, place,
            fmt::format("'{}' in the description makes no sense; the session file is damaged", wrong));
    }
    return about;
}

}  // namespace waste::engine
