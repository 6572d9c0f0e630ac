#include "container/checksum.h"

#include <fmt/format.h>
#include <xxhash.h>

#include <array>

namespace waste::container {

uint64_t xxh3_64(std::span<const std::byte> data) {
    return XXH3_64bits(data.data(), data.size());
}

uint64_t xxh3_64(std::string_view data) {
    return XXH3_64bits(data.data(), data.size());
}

struct Hasher::State {
    struct Free {
        void operator()(XXH3_state_t* state) const { XXH3_freeState(state); }
    };
    std::unique_ptr<XXH3_state_t, Free> xxh{XXH3_createState()};
};

// The 64-bit and the 128-bit digest grow from the same state; only the last step differs.
Hasher::Hasher() : state_(std::make_unique<State>()) {
    XXH3_128bits_reset(state_->xxh.get());
}
Hasher::Hasher(Hasher&&) noexcept = default;
Hasher& Hasher::operator=(Hasher&&) noexcept = default;
Hasher::~Hasher() = default;

void Hasher::update(std::span<const std::byte> data) {
    if (!data.empty()) XXH3_128bits_update(state_->xxh.get(), data.data(), data.size());
}

void Hasher::update(std::string_view data) {
    update(std::as_bytes(std::span(data)));
}

void Hasher::update_u64(uint64_t value) {
    std::array<std::byte, sizeof(value)> bytes;
    for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(value >> (8 * i));
    update(bytes);
}

uint64_t Hasher::digest_64() const {
    return XXH3_64bits_digest(state_->xxh.get());
}

std::string Hasher::digest_128_hex() const {
    const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh.get());
    return to_hex(hash.high64) + to_hex(hash.low64);
}

std::string to_hex(uint64_t value) {
    return fmt::format("{:016x}", value);
}

std::optional<uint64_t> from_hex(std::string_view text) {
    if (text.size() != 16) return std::nullopt;
    uint64_t value = 0;
    for (const char c : text) {
        uint64_t digit;
        if (c >= '0' && c <= '9') {
            digit = static_cast<uint64_t>(c - '0');
        } else if (c >= 'a' && c <= 'f') {
            digit = static_cast<uint64_t>(c - 'a') + 10;
        } else {
            return std::nullopt;
        }
        value = value << 4 | digit;
    }
    return value;
}

}  // namespace waste::container
