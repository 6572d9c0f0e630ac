#include "tools/words.h"

#include <charconv>
#include <string_view>
#include <vector>

namespace waste::tools {
namespace {

/// The option a word names, or null.
const CLI::Option* option_of(const CLI::App& command, std::string_view word) {
    if (!word.starts_with('-') || word == "-") return nullptr;
    return command.get_option_no_throw(std::string(word));
}

/// Decimal digits that fit the type, and nothing else: no octal, no wrapping.
template <typename Integer>
std::string wrong_number(const std::string& name, std::string_view value) {
    Integer number{};
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), number);
    if (error == std::errc::result_out_of_range) return name + ": " + std::string(value) + " is too large";
    const size_t sign = value.starts_with('-') ? 1 : 0;
    const bool octal = value.size() > sign + 1 && value[sign] == '0';
    if (error == std::errc() && end == value.data() + value.size() && !octal) return {};
    return name + ": '" + std::string(value) + "' is not a whole number";
}

std::string wrong_value(const CLI::Option& option, const std::string& name, std::string_view value) {
    if (value.empty()) return name + " has an empty value";
    const std::string type = option.get_type_name();
    if (type.starts_with("INT")) return wrong_number<int64_t>(name, value);
    if (type.starts_with("UINT")) return wrong_number<uint64_t>(name, value);
    return {};
}

/// Names of the positionals that must be given, in order.
std::vector<std::string> required_positionals(const CLI::App& command) {
    std::vector<std::string> names;
    for (const CLI::Option* option : command.get_options()) {
        if (option->get_positional() && option->get_required()) names.push_back(option->get_name());
    }
    return names;
}

}  // namespace

std::string wrong_words(const CLI::App& command, std::span<char* const> words) {
    const std::vector<std::string> positionals = required_positionals(command);
    size_t position = 0;
    for (size_t i = 0; i < words.size(); i++) {
        const std::string_view word = words[i];
        if (word == "--") return {};
        const size_t equals = word.starts_with("--") ? word.find('=') : std::string_view::npos;
        const std::string name(word.substr(0, equals));
        const CLI::Option* option = option_of(command, name);
        if (!option) {
            if (word.empty() && position < positionals.size()) return positionals[position] + " is empty";
            position += word.starts_with('-') ? 0 : 1;
            continue;
        }
        if (option->get_items_expected_max() == 0) continue;  // a flag
        const bool has_next = i + 1 < words.size();
        if (equals == std::string_view::npos && !has_next) return name + " has no value";
        const std::string_view value =
            equals == std::string_view::npos ? words[++i] : word.substr(equals + 1);
        if (equals == std::string_view::npos && option_of(command, value)) {
            return name + " has no value, " + std::string(value) + " follows it";
        }
        if (std::string wrong = wrong_value(*option, name, value); !wrong.empty()) return wrong;
    }
    return {};
}

}  // namespace waste::tools
