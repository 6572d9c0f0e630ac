#include "engine/text/json_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <map>
#include <nlohmann/json.hpp>
#include <utility>

namespace waste::engine {
namespace {

using nlohmann::json;

using Kind = JsonValue::Kind;

/// Python's repr of a float: the fewest digits that read back as the same number, an exponent only from 1e16 on and
/// under 1e-4.
std::string float_text(double value) {
    char buffer[32];
    const auto end = std::to_chars(buffer, buffer + sizeof buffer, value, std::chars_format::scientific).ptr;
    const std::string_view shortest(buffer, static_cast<size_t>(end - buffer));
    const size_t e = shortest.find('e');
    int exponent = 0;
    const std::string_view exponent_text = shortest.substr(e + 1);
    const size_t plus = exponent_text.starts_with('+') ? 1 : 0;
    std::from_chars(exponent_text.data() + plus, exponent_text.data() + exponent_text.size(), exponent);
    if (exponent < -4 || exponent >= 16) return std::string(shortest);
    std::string digits(shortest.substr(0, e));
    const std::string sign = digits.starts_with('-') ? "-" : "";
    digits.erase(0, sign.size());
    std::erase(digits, '.');
    if (exponent < 0) return sign + "0." + std::string(static_cast<size_t>(-exponent - 1), '0') + digits;
    const auto whole = static_cast<size_t>(exponent) + 1;
    if (digits.size() <= whole) return sign + digits + std::string(whole - digits.size(), '0') + ".0";
    return sign + digits.substr(0, whole) + "." + digits.substr(whole);
}

/// Builds a value from the parser's events.
class Builder : public nlohmann::json_sax<json> {
  public:
    bool null() override { return add({Kind::null, "null"}); }
    bool boolean(bool value) override { return add({Kind::boolean, value ? "true" : "false"}); }
    bool number_integer(int64_t value) override { return add({Kind::number, std::to_string(value)}); }
    bool number_unsigned(uint64_t value) override { return add({Kind::number, std::to_string(value)}); }
    bool number_float(double value, const std::string& text) override {
        // An integer past 64 bits arrives here too; Python keeps its digits.
        const bool integer = text.find_first_of(".eE") == std::string::npos;
        return add({Kind::number, integer ? text : float_text(value)});
    }
    bool string(std::string& value) override { return add({Kind::string, std::move(value)}); }
    bool binary(json::binary_t&) override { return false; }
    bool start_object(size_t) override { return start(Kind::object); }
    bool start_array(size_t) override { return start(Kind::array); }
    bool key(std::string& name) override {
        open_.back().members.emplace_back(std::move(name), JsonValue{});
        return true;
    }
    bool end_object() override {
        keep_last_of_each(open_.back().members);
        return end();
    }
    bool end_array() override { return end(); }
    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception&) override {
        return false;
    }

    bool too_deep() const { return too_deep_; }
    JsonValue take() { return std::move(root_); }

  private:
    bool add(JsonValue node) {
        if (open_.empty()) {
            root_ = std::move(node);
        } else if (open_.back().kind == Kind::object) {
            open_.back().members.back().second = std::move(node);
        } else {
            open_.back().items.push_back(std::move(node));
        }
        return true;
    }
    bool start(Kind kind) {
        too_deep_ = open_.size() == kMaxJsonDepth;
        if (!too_deep_) open_.push_back({kind});
        return !too_deep_;
    }
    bool end() {
        JsonValue node = std::move(open_.back());
        open_.pop_back();
        return add(std::move(node));
    }
    static void keep_last_of_each(std::vector<std::pair<std::string, JsonValue>>& members) {
        std::map<std::string, size_t> places;
        size_t kept = 0;
        for (auto& member : members) {
            const auto [place, is_new] = places.emplace(member.first, kept);
            if (!is_new) {
                members[place->second].second = std::move(member.second);
            } else if (&member != &members[kept++]) {
                members[kept - 1] = std::move(member);
            }
        }
        members.erase(members.begin() + static_cast<std::ptrdiff_t>(kept), members.end());
    }

    std::vector<JsonValue> open_;  ///< arrays and objects that are not complete
    JsonValue root_;
    bool too_deep_ = false;
};

void print(const JsonValue& node, JsonStyle style, std::string& out) {
    if (node.kind == Kind::string) {
        out += json_string(node.text);
    } else if (node.kind == Kind::array) {
        out += '[';
        for (size_t i = 0; i < node.items.size(); ++i) {
            if (i > 0) out += style == JsonStyle::sorted ? "," : ", ";
            print(node.items[i], style, out);
        }
        out += ']';
    } else if (node.kind == Kind::object) {
        std::vector<const std::pair<std::string, JsonValue>*> members;
        for (const auto& member : node.members) members.push_back(&member);
        if (style == JsonStyle::sorted) {
            std::sort(members.begin(), members.end(), [](auto* a, auto* b) { return a->first < b->first; });
        }
        out += '{';
        for (size_t i = 0; i < members.size(); ++i) {
            if (i > 0) out += style == JsonStyle::sorted ? "," : ", ";
            out += json_string(members[i]->first);
            out += style == JsonStyle::sorted ? ":" : ": ";
            print(members[i]->second, style, out);
        }
        out += '}';
    } else {
        out += node.text;
    }
}

}  // namespace

const JsonValue* JsonValue::find(std::string_view name) const {
    for (const auto& [key, value] : members) {
        if (key == name) return value.is(Kind::null) ? nullptr : &value;
    }
    return nullptr;
}

std::string_view json_kind_name(JsonValue::Kind kind) {
    switch (kind) {
        case Kind::null:
            return "null";
        case Kind::boolean:
            return "boolean";
        case Kind::number:
            return "number";
        case Kind::string:
            return "string";
        case Kind::array:
            return "array";
        case Kind::object:
            return "object";
    }
    return "";
}

std::string json_string(std::string_view text) {
    return json(text).dump(-1, ' ', false, json::error_handler_t::replace);
}

std::string print_json(const JsonValue& value, JsonStyle style) {
    std::string out;
    print(value, style, out);
    return out;
}

Result<std::optional<JsonValue>> parse_json(std::string_view text, const std::string& place) {
    Builder builder;
    if (json::sax_parse(text, &builder)) return builder.take();
    if (builder.too_deep()) {
        return fail(ErrorKind::unsupported, place, fmt::format("is nested deeper than {}", kMaxJsonDepth));
    }
    return std::nullopt;
}

}  // namespace waste::engine
