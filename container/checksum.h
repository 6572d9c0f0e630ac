// Checksums of the container: XXH3-64 for tensors and records, XXH3-128 for the fingerprint.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace waste::container {

uint64_t xxh3_64(std::span<const std::byte> data);
uint64_t xxh3_64(std::string_view data);

/// XXH3 over pieces, for data that never lies in memory at once.
class Hasher {
  public:
    Hasher();
    Hasher(Hasher&&) noexcept;
    Hasher& operator=(Hasher&&) noexcept;
    ~Hasher();

    void update(std::span<const std::byte> data);
    void update(std::string_view data);
    void update_u64(uint64_t value);  ///< little-endian
    uint64_t digest_64() const;
    std::string digest_128_hex() const;

  private:
    struct State;
    std::unique_ptr<State> state_;
};

/// 16 lower-case hexadecimal digits, and back.
std::string to_hex(uint64_t value);
std::optional<uint64_t> from_hex(std::string_view text);

}  // namespace waste::container
