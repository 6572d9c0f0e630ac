#include "engine/text/utf8.h"

#include <utility>

namespace waste::engine {
namespace {

constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

/// What a lead byte asks for: the length, its own bits, and the range of the second byte, which is where
/// overlong forms, surrogates and values above U+10FFFF are excluded.
struct Lead {
    uint8_t length;  ///< 0: not a lead byte
    uint8_t bits;
    uint8_t second_min;
    uint8_t second_max;
};

Lead lead_of(uint8_t byte) {
    if (byte < 0x80) return {1, byte, 0, 0};
    if (byte < 0xC2) return {0, 0, 0, 0};
    if (byte < 0xE0) return {2, static_cast<uint8_t>(byte & 0x1F), 0x80, 0xBF};
    if (byte < 0xF0) {
        const uint8_t low = byte == 0xE0 ? 0xA0 : 0x80;
        const uint8_t high = byte == 0xED ? 0x9F : 0xBF;
        return {3, static_cast<uint8_t>(byte & 0x0F), low, high};
    }
    if (byte < 0xF5) {
        const uint8_t low = byte == 0xF0 ? 0x90 : 0x80;
        const uint8_t high = byte == 0xF4 ? 0x8F : 0xBF;
        return {4, static_cast<uint8_t>(byte & 0x07), low, high};
    }
    return {0, 0, 0, 0};
}

}  // namespace

Utf8Step next_utf8(std::string_view rest) {
    const Lead lead = lead_of(static_cast<uint8_t>(rest[0]));
    if (lead.length == 0) return {Utf8Step::Kind::invalid, 1, 0};
    char32_t character = lead.bits;
    for (uint8_t i = 1; i < lead.length; ++i) {
        if (i >= rest.size()) return {Utf8Step::Kind::truncated, i, 0};
        const auto byte = static_cast<uint8_t>(rest[i]);
        const uint8_t low = i == 1 ? lead.second_min : 0x80;
        const uint8_t high = i == 1 ? lead.second_max : 0xBF;
        if (byte < low || byte > high) return {Utf8Step::Kind::invalid, i, 0};
        character = character << 6 | (byte & 0x3Fu);
    }
    return {Utf8Step::Kind::character, lead.length, character};
}

std::optional<size_t> first_invalid_utf8(std::string_view text) {
    for (size_t at = 0; at < text.size();) {
        const Utf8Step step = next_utf8(text.substr(at));
        if (step.kind != Utf8Step::Kind::character) return at;
        at += step.bytes;
    }
    return std::nullopt;
}

std::string Utf8Stream::push(std::string_view bytes) {
    held_ += bytes;
    std::string whole;
    size_t at = 0;
    while (at < held_.size()) {
        const std::string_view rest = std::string_view(held_).substr(at);
        const Utf8Step step = next_utf8(rest);
        if (step.kind == Utf8Step::Kind::truncated) break;
        whole += step.kind == Utf8Step::Kind::character ? rest.substr(0, step.bytes) : kReplacement;
        at += step.bytes;
    }
    held_.erase(0, at);
    return whole;
}

std::string Utf8Stream::finish() {
    const bool incomplete = !held_.empty();
    held_.clear();
    return std::string(incomplete ? kReplacement : std::string_view());
}

}  // namespace waste::engine
