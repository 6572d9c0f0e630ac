// Builds small containers in memory, for tests that need a valid one to read, damage or reseal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "container/manifest.h"
#include "container/result.h"

namespace waste::test {

/// The parts of a container, open to change. `seal` makes hashes, lengths and fingerprint agree with the
/// parts; whatever is changed after it is damage.
struct TinyContainer {
    struct Bank {
        std::vector<std::byte> records;
        std::vector<container::ExpertEntry> table;
    };

    container::Manifest manifest{};
    std::vector<std::byte> trunk;
    std::vector<Bank> banks;                   ///< as manifest.banks
    std::map<std::string, std::string> files;  ///< name -> content

    /// Values in logical order; for mxfp4 see add_bank.
    void add_tensor(const std::string& name, kernels::Format format, container::Layout layout,
                    const std::vector<int64_t>& shape, std::span<const float> values);
    /// Experts of arbitrary weights that depend on `seed` only.
    void add_bank(int64_t layer, const container::BankShape& shape, uint32_t seed);

    void seal();
    std::vector<std::byte> bank_bytes(size_t bank) const;
    Result<void> write(const std::string& directory) const;
};

/// A matrix [rows][cols] in panels. Not for mxfp4.
std::vector<std::byte> encode_panels(kernels::Format format, int64_t rows, int64_t cols,
                                     std::span<const float> values);

/// `count` values between -1 and 1 that depend on `seed` only.
std::vector<float> arbitrary_values(size_t count, uint32_t seed);

/// A sealed container with every format and layout, two banks and two carried files.
TinyContainer tiny_container();

}  // namespace waste::test
