// A bank file of one fixed shape. The mutator reseals table and footer, so that the checks behind the hashes
// are reached; the hash that a manifest would hold is taken from the footer.
#include <cstdlib>

#include "container/checksum.h"
#include "container/manifest.h"

namespace {

using namespace waste::container;

constexpr size_t kFooterBytes = 80;
constexpr size_t kTableHashAt = 64;
constexpr size_t kFooterHashAt = 72;
constexpr BankShape kShape{2, 16, 16, waste::kernels::Format::q4};
constexpr int64_t kLayer = 3;

size_t table_bytes() {
    return bank_tail_bytes(kShape.experts) - kFooterBytes;
}

void store(uint8_t* at, uint64_t value) {
    for (size_t i = 0; i < sizeof(value); ++i) at[i] = static_cast<uint8_t>(value >> (8 * i));
}

uint64_t load(const uint8_t* at) {
    uint64_t value = 0;
    for (size_t i = 0; i < sizeof(value); ++i) value |= uint64_t{at[i]} << (8 * i);
    return value;
}

std::span<const std::byte> bytes_of(const uint8_t* data, size_t size) {
    return {reinterpret_cast<const std::byte*>(data), size};
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    uint64_t table_hash = 0;
    if (size >= kFooterBytes) table_hash = load(data + size - kFooterBytes + kTableHashAt);
    const BankEntry bank{kLayer, "bank", kShape, size, table_hash};
    const auto table = parse_bank_table(bytes_of(data, size), bank, "input");
    if (!table) return 0;
    if (table->size() != static_cast<size_t>(kShape.experts)) abort();
    for (const ExpertEntry& entry : *table) {
        if (entry.length != kShape.record_bytes() || entry.offset > size ||
            size - entry.offset < entry.length) {
            abort();
        }
    }
    return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int) {
    const size_t tail = table_bytes() + kFooterBytes;
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size < tail) return size;
    uint8_t* footer = data + size - kFooterBytes;
    store(footer + kTableHashAt, xxh3_64(bytes_of(footer - table_bytes(), table_bytes())));
    store(footer + kFooterHashAt, xxh3_64(bytes_of(footer, kFooterHashAt)));
    return size;
}
