#include "engine/c_api/boundary.h"

#include <fmt/format.h>

#include <string_view>

namespace waste::c_api {
namespace {

constexpr size_t kErrorBytes = 1024;
thread_local char last_error[kErrorBytes] = "";

waste_status status_of(ErrorKind kind) {
    switch (kind) {
        case ErrorKind::not_found:
            return WASTE_NOT_FOUND;
        case ErrorKind::io:
            return WASTE_IO;
        case ErrorKind::corrupt:
            return WASTE_CORRUPT;
        case ErrorKind::unsupported:
            return WASTE_UNSUPPORTED;
        case ErrorKind::invalid:
            return WASTE_INVALID;
        case ErrorKind::capacity:
            return WASTE_CAPACITY;
        case ErrorKind::interrupted:
            return WASTE_STOPPED;
    }
    return WASTE_INTERNAL;
}

/// Appends as much as there is room for; what is cut is cut between characters.
size_t append(size_t length, std::string_view text) noexcept {
    size_t count = std::min(text.size(), kErrorBytes - 1 - length);
    const auto inside_character = [&](size_t at) {
        return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0U) == 0x80U;
    };
    while (count > 0 && inside_character(count)) count--;
    std::memcpy(last_error + length, text.data(), count);
    last_error[length + count] = '\0';
    return length + count;
}

}  // namespace

waste_status keep_error(const Error& error) noexcept {
    size_t length = append(0, error.place);
    if (!error.place.empty()) length = append(length, ": ");
    append(length, error.message);
    return status_of(error.kind);
}

waste_status keep_error(waste_status status, const char* text) noexcept {
    append(0, text);
    return status;
}

Result<void> check_size(size_t struct_size, const char* type) {
    if (struct_size >= sizeof(size_t)) return {};
    return fail(ErrorKind::invalid, fmt::format("{}.struct_size", type),
                fmt::format("is {}; set it to the size of the struct", struct_size));
}

Result<void> read_bytes(const void* given, size_t struct_size, void* known, size_t known_bytes,
                        const char* type) {
    if (const auto good = check_size(struct_size, type); !good) return good;
    const auto* bytes = static_cast<const unsigned char*>(given);
    const auto is_set = [](unsigned char byte) { return byte != 0; };
    if (struct_size > known_bytes && std::any_of(bytes + known_bytes, bytes + struct_size, is_set)) {
        return fail(ErrorKind::unsupported, type,
                    "asks for something that this version of the library does not know");
    }
    std::memcpy(known, bytes, std::min(struct_size, known_bytes));
    return {};
}

}  // namespace waste::c_api

extern "C" {

const char* waste_status_name(int32_t status) {
    switch (status) {
        case WASTE_OK:
            return "ok";
        case WASTE_NOT_FOUND:
            return "not_found";
        case WASTE_IO:
            return "io";
        case WASTE_CORRUPT:
            return "corrupt";
        case WASTE_UNSUPPORTED:
            return "unsupported";
        case WASTE_INVALID:
            return "invalid";
        case WASTE_CAPACITY:
            return "capacity";
        case WASTE_STOPPED:
            return "stopped";
        case WASTE_OUT_OF_MEMORY:
            return "out_of_memory";
        case WASTE_INTERNAL:
            return "internal";
        default:
            return "unknown";
    }
}

const char* waste_last_error(void) {
    return waste::c_api::last_error;
}

const char* waste_version(void) {
    return WASTE_VERSION;
}

}  // extern "C"
