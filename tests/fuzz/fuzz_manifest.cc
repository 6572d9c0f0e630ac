// The text of manifest.json. Its hashes are only compared when a container is opened, so that parsing needs
// no resealing; what it accepts must survive being written and read again.
#include <cstdlib>

#include "container/manifest.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace waste::container;
    const auto manifest = parse_manifest({reinterpret_cast<const char*>(data), size}, "input");
    if (!manifest) return 0;
    uint64_t end = 0;
    for (const TensorEntry& tensor : manifest->tensors) {
        const auto bytes = tensor_bytes(tensor.format, tensor.layout, tensor.shape);
        if (!bytes || *bytes != tensor.bytes || tensor.offset < end || tensor.offset % kAlignment != 0)
            abort();
        if (tensor.offset > manifest->trunk_bytes || tensor.bytes > manifest->trunk_bytes - tensor.offset)
            abort();
        end = tensor.offset + tensor.bytes;
    }
    for (const BankEntry& bank : manifest->banks) {
        if (!check_bank_shape(bank.shape, "input") || bank.bytes > bank.shape.file_bytes()) abort();
    }
    const std::string text = manifest_text(*manifest);
    const auto again = parse_manifest(text, "written");
    if (!again || manifest_text(*again) != text) abort();
    const std::vector<std::vector<ExpertEntry>> tables(manifest->banks.size());
    if (compute_fingerprint(*manifest, tables) != compute_fingerprint(*again, tables)) abort();
    return 0;
}
