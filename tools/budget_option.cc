#include "tools/budget_option.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

namespace waste::tools {
namespace {

constexpr std::string_view kAuto = "auto";

bool is_digit(char c) {
    return c >= '0' && c <= '9';
}

/// What a unit stands for; nothing for words that are none.
std::optional<uint64_t> unit_bytes(std::string_view unit) {
    constexpr std::string_view kLetters = "kmgt";
    std::string lower(unit);
    std::transform(lower.begin(), lower.end(), lower.begin(),
                   [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
    if (lower.empty() || lower == "b") return 1;
    const size_t power = kLetters.find(lower.front());
    if (power == kLetters.npos) return std::nullopt;
    const std::string_view rest = std::string_view(lower).substr(1);
    if (!rest.empty() && rest != "b" && rest != "ib") return std::nullopt;
    uint64_t bytes = 1;
    for (size_t i = 0; i <= power; i++) bytes *= rest == "b" ? 1000 : 1024;
    return bytes;
}

tl::unexpected<Error> not_a_size(std::string_view text) {
    return fail(ErrorKind::invalid, fmt::format("'{}'", text),
                "is not a size; write it like 24G, 1.5GiB or 512MiB");
}

}  // namespace

Result<uint64_t> parse_size(std::string_view text) {
    const auto end_of_digits = [&](size_t from) {
        while (from < text.size() && is_digit(text[from])) from++;
        return from;
    };
    const size_t whole_end = end_of_digits(0);
    const bool has_fraction = whole_end < text.size() && text[whole_end] == '.';
    const size_t number_end = has_fraction ? end_of_digits(whole_end + 1) : whole_end;
    const size_t unit_begin = std::min(text.find_first_not_of(' ', number_end), text.size());
    const auto unit = unit_bytes(text.substr(unit_begin));
    if (whole_end == 0 || (has_fraction && number_end == whole_end + 1) || !unit) return not_a_size(text);
    uint64_t bytes = 0;
    for (const char digit : text.substr(0, whole_end)) {
        if (__builtin_mul_overflow(bytes, 10, &bytes) ||
            __builtin_add_overflow(bytes, static_cast<uint64_t>(digit - '0'), &bytes)) {
            return not_a_size(text);
        }
    }
    if (__builtin_mul_overflow(bytes, *unit, &bytes)) return not_a_size(text);
    if (!has_fraction) return bytes;
    // Of a fraction of less than 2^41 bytes, more than these digits do not count.
    constexpr size_t kMostDigits = 15;
    double fraction = 0, weight = 1;
    for (const char digit : text.substr(whole_end + 1, std::min(kMostDigits, number_end - whole_end - 1))) {
        weight /= 10;
        fraction += weight * (digit - '0');
    }
    const auto part = static_cast<uint64_t>(fraction * static_cast<double>(*unit));
    if (__builtin_add_overflow(bytes, part, &bytes)) return not_a_size(text);
    return bytes;
}

std::string check_size(const std::string& text) {
    const auto size = parse_size(text);
    return size ? std::string() : size.error().text();
}

void add_budget_option(CLI::App& command, std::optional<uint64_t>& budget_bytes) {
    const auto legal = [](const std::string& text) {
        return text == kAuto ? std::string() : check_size(text);
    };
    command
        .add_option_function<std::string>(
            "--budget",
            [&budget_bytes](const std::string& text) {
                const auto size = parse_size(text);
                budget_bytes = size ? std::optional(*size) : std::nullopt;
            },
            "Memory for everything, like 24G or 512MiB; auto: as much as is safe here (default: auto)")
        ->check(legal)
        ->type_name("SIZE|auto");
}

}  // namespace waste::tools
