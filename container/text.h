// Text of untrusted files on its way into an error, and names on their way to the file system.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace waste::container {

/// `text` fit for one line: control characters and bytes outside ASCII escaped, long text cut.
std::string printable(std::string_view text);

/// `text` as a JSON string, quotes included; bytes that are not UTF-8 become U+FFFD.
std::string json_string(std::string_view text);

/// True for a name that stays inside its directory: no slash, no control character, no leading dot.
bool is_plain_file_name(std::string_view name);

/// "1 byte", "17 bytes".
std::string byte_count(uint64_t bytes);

}  // namespace waste::container
