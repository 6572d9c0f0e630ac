#include <fmt/format.h>
#include <fmt/ranges.h>

#include "container/safetensors.h"
#include "container/safetensors_header.h"
#include "container/text.h"

namespace waste::container {
namespace {

Result<std::string> header_of(std::span<const NamedTensor> tensors, const std::string& path) {
    std::string header = "{";
    uint64_t begin = 0;
    for (const NamedTensor& tensor : tensors) {
        const std::string place = fmt::format("{}: tensor {}", path, printable(tensor.name));
        if (tensor.dtype == Dtype::f8) {
            return fail(ErrorKind::unsupported, place, "fp8 is read but not written");
        }
        const auto bytes = dense_bytes(tensor.dtype, tensor.shape, place);
        if (!bytes) return pass(bytes);
        if (*bytes != tensor.data.size()) {
            return fail(ErrorKind::invalid, place,
                        fmt::format("its shape needs {} bytes, its data has {}", *bytes, tensor.data.size()));
        }
        header += fmt::format("{}{}:{{\"dtype\":\"{}\",\"shape\":[{}],\"data_offsets\":[{},{}]}}",
                              header.size() == 1 ? "" : ",", json_string(tensor.name),
                              dtype_name(tensor.dtype), fmt::join(tensor.shape, ","), begin, begin + *bytes);
        begin += *bytes;
    }
    header += '}';
    while (header.size() % kHeaderLengthBytes != 0) header += ' ';
    return header;
}

}  // namespace

Result<void> write_safetensors(const std::string& path, std::span<const NamedTensor> tensors) {
    const auto header = header_of(tensors, path);
    if (!header) return pass(header);
    auto file = OutputFile::create(path, OutputFile::Existing::replace);
    if (!file) return pass(file);
    std::string start;
    for (size_t i = 0; i < kHeaderLengthBytes; ++i) {
        start += static_cast<char>(static_cast<uint64_t>(header->size()) >> (8 * i) & 0xff);
    }
    start += *header;
    auto written = file->write_at(0, std::as_bytes(std::span(start)));
    uint64_t offset = start.size();
    for (const NamedTensor& tensor : tensors) {
        if (!written) break;
        written = file->write_at(offset, tensor.data);
        offset += tensor.data.size();
    }
    if (written) written = file->commit();
    if (!written) remove_file(path + std::string(kPartialSuffix));
    return written;
}

}  // namespace waste::container
