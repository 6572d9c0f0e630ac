// JSON as the releases' chat encoders print it: Python's spelling of numbers, only what must be escaped is escaped.
// The models were trained on exactly these characters.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "container/result.h"

namespace waste::engine {

inline constexpr size_t kMaxJsonDepth = 128;

struct JsonValue {
    enum class Kind : uint8_t { null, boolean, number, string, array, object };

    Kind kind = Kind::null;
    std::string text{};              ///< a string's characters, or a scalar as printed
    std::vector<JsonValue> items{};  ///< of an array
    std::vector<std::pair<std::string, JsonValue>>
        members{};  ///< of an object, in their order, each key once

    bool is(Kind other) const { return kind == other; }
    /// The member of that name; null where there is none or it is null itself.
    const JsonValue* find(std::string_view name) const;
};

/// "null", "boolean", …
std::string_view json_kind_name(JsonValue::Kind kind);

/// Empty where the text is not JSON in UTF-8; an error, naming `place`, where it is nested deeper than kMaxJsonDepth. Of a
/// repeated key the last value counts, at the place of the first. The text is untrusted.
Result<std::optional<JsonValue>> parse_json(std::string_view text, const std::string& place);

enum class JsonStyle : uint8_t {
    sorted,  ///< no blanks, the keys of every object sorted by code point
    spaced   ///< the order kept, a blank behind commas and colons
};
std::string print_json(const JsonValue& value, JsonStyle style);

/// A string in quotes.
std::string json_string(std::string_view text);

}  // namespace waste::engine
