#include "container/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace waste::container {

std::string printable(std::string_view text) {
    constexpr size_t kLongest = 160;
    std::string out;
    for (const char c : text.substr(0, kLongest)) {
        if (c >= 0x20 && c <= 0x7e && c != '\\') {
            out += c;
        } else {
            out += fmt::format("\\x{:02x}", static_cast<unsigned char>(c));
        }
    }
    if (text.size() > kLongest) out += "...";
    return out;
}

std::string json_string(std::string_view text) {
    return nlohmann::json(text).dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

bool is_plain_file_name(std::string_view name) {
    constexpr size_t kLongest = 255;  // NAME_MAX of every Linux file system we know
    if (name.empty() || name.size() > kLongest || name.front() == '.') return false;
    return std::none_of(name.begin(), name.end(), [](char c) {
        const auto byte = static_cast<unsigned char>(c);
        return c == '/' || byte < 0x20 || byte == 0x7f;
    });
}

std::string byte_count(uint64_t bytes) {
    return fmt::format("{} byte{}", bytes, bytes == 1 ? "" : "s");
}

}  // namespace waste::container
