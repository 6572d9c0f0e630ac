// A list of hot experts of one small model. The mutator reseals it, so that the checks behind the checksum are
// reached; what is accepted must be written as it was read.
#include <cstdlib>

#include "container/checksum.h"
#include "engine/hot_list.h"

namespace {

constexpr int64_t kLayers = 2, kExperts = 4;
constexpr size_t kChecksumBytes = 8;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view bytes(reinterpret_cast<const char*>(data), size);
    const auto list =
        waste::engine::HotList::parse(bytes, "input", "0123456789abcdef0123456789abcdef", kLayers, kExperts);
    if (!list) return 0;
    if (list->counts().size() != static_cast<size_t>(kLayers * kExperts) || list->file_bytes() != bytes)
        abort();
    for (const int64_t key : list->hottest(3)) {
        if (list->counts()[static_cast<size_t>(key)] == 0) abort();
    }
    return 0;
}

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t max_size);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int) {
    size = LLVMFuzzerMutate(data, size, max_size);
    if (size < kChecksumBytes) return size;
    const size_t checked = size - kChecksumBytes;
    const uint64_t hash = waste::container::xxh3_64({reinterpret_cast<const char*>(data), checked});
    for (size_t i = 0; i < kChecksumBytes; i++) data[checked + i] = static_cast<uint8_t>(hash >> (8 * i));
    return size;
}
