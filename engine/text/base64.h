// Base64 as in RFC 4648 section 4, decoded strictly.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace waste::engine {

/// The bytes, or nothing unless `text` is exactly what an encoder writes: whole groups of four, padding only
/// at the end, unused bits zero.
std::optional<std::string> decode_base64(std::string_view text);

}  // namespace waste::engine
