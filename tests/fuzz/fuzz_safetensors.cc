// A safetensors file's bytes.
#include <cstdlib>

#include "container/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace waste::container;
    const std::span file(reinterpret_cast<const std::byte*>(data), size);
    const auto tensors = parse_safetensors_header(file, "input");
    if (!tensors) return 0;
    // What a reader then relies on.
    for (const HeaderTensor& tensor : *tensors) {
        const auto bytes = dense_bytes(tensor.dtype, tensor.shape, "input");
        if (!bytes || tensor.begin > tensor.end || tensor.end > size || *bytes != tensor.end - tensor.begin)
            abort();
    }
    return 0;
}
