#include "engine/text/base64.h"

#include <array>
#include <cstdint>

namespace waste::engine {
namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr uint8_t kNotADigit = 0xFF;

constexpr std::array<uint8_t, 256> digit_values() {
    std::array<uint8_t, 256> values{};
    values.fill(kNotADigit);
    for (size_t i = 0; i < kDigits.size(); ++i) {
        values[static_cast<uint8_t>(kDigits[i])] = static_cast<uint8_t>(i);
    }
    return values;
}

constexpr std::array<uint8_t, 256> kValues = digit_values();

}  // namespace

std::optional<std::string> decode_base64(std::string_view text) {
    if (text.size() % 4 != 0) return std::nullopt;
    size_t padding = 0;
    while (padding < 2 && padding < text.size() && text[text.size() - 1 - padding] == '=') ++padding;
    const std::string_view digits = text.substr(0, text.size() - padding);

    std::string bytes;
    bytes.reserve(text.size() / 4 * 3);
    uint32_t bits = 0;
    int bit_count = 0;
    for (const char digit : digits) {
        const uint8_t value = kValues[static_cast<uint8_t>(digit)];
        if (value == kNotADigit) return std::nullopt;
        bits = bits << 6 | value;
        bit_count += 6;
        if (bit_count >= 8) {
            bit_count -= 8;
            bytes += static_cast<char>(bits >> bit_count & 0xFF);
        }
    }
    const uint32_t unused = bits & ((1u << bit_count) - 1);
    if (unused != 0) return std::nullopt;
    return bytes;
}

}  // namespace waste::engine
