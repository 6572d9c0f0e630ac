#include "tests/support/golden.h"

#include <cmath>
#include <cstring>
#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace waste::test {

GoldenFile GoldenFile::load(const std::string& path) {
    std::ifstream stream(path, std::ios::binary);
    if (!stream) throw std::runtime_error("golden file missing: " + path);
    const std::vector<char> bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
    uint64_t header_bytes = 0;
    if (bytes.size() < sizeof header_bytes) throw std::runtime_error("golden file too short: " + path);
    std::memcpy(&header_bytes, bytes.data(), sizeof header_bytes);
    if (header_bytes > bytes.size() - sizeof header_bytes) {
        throw std::runtime_error("golden file header past its end: " + path);
    }

    GoldenFile file;
    file.path_ = path;
    const char* header = bytes.data() + sizeof header_bytes;
    file.data_.assign(header + header_bytes, bytes.data() + bytes.size());
    const nlohmann::json json = nlohmann::json::parse(header, header + header_bytes);
    for (const auto& [name, value] : json.items()) {
        if (name == "__metadata__") continue;
        const auto offsets = value.at("data_offsets").get<std::vector<size_t>>();
        file.entries_[name] = {value.at("dtype").get<std::string>(),
                               value.at("shape").get<std::vector<int64_t>>(), offsets.at(0), offsets.at(1)};
    }
    return file;
}

std::vector<std::string> GoldenFile::names() const {
    std::vector<std::string> out;
    for (const auto& [name, entry] : entries_) out.push_back(name);
    return out;
}

template <typename T>
GoldenTensor<T> GoldenFile::read(const std::string& name, const std::string& dtype) const {
    const auto found = entries_.find(name);
    if (found == entries_.end()) throw std::runtime_error(path_ + " has no tensor " + name);
    const Entry& entry = found->second;
    if (entry.dtype != dtype) {
        throw std::runtime_error(path_ + ": " + name + " is " + entry.dtype + ", not " + dtype);
    }
    size_t count = 1;
    for (const int64_t dim : entry.shape) count *= static_cast<size_t>(dim);
    if (entry.end > data_.size() || entry.begin > entry.end || entry.end - entry.begin != count * sizeof(T)) {
        throw std::runtime_error(path_ + ": " + name + " has a size that is not its shape's");
    }
    GoldenTensor<T> tensor{entry.shape, std::vector<T>(count)};
    if (count > 0) std::memcpy(tensor.values.data(), data_.data() + entry.begin, count * sizeof(T));
    return tensor;
}

GoldenTensor<float> GoldenFile::f32(const std::string& name) const {
    return read<float>(name, "F32");
}
GoldenTensor<int32_t> GoldenFile::i32(const std::string& name) const {
    return read<int32_t>(name, "I32");
}
GoldenTensor<uint8_t> GoldenFile::u8(const std::string& name) const {
    return read<uint8_t>(name, "U8");
}

const GoldenFile& kernel_goldens() {
    static const GoldenFile file = GoldenFile::load(WASTE_TEST_DATA "/kernel-goldens.safetensors");
    return file;
}

double relative_error(std::span<const float> got, std::span<const float> expected) {
    if (got.size() != expected.size()) throw std::runtime_error("relative_error of different sizes");
    double difference = 0.0;
    double norm = 0.0;
    for (size_t i = 0; i < got.size(); ++i) {
        const double delta = double{got[i]} - double{expected[i]};
        difference += delta * delta;
        norm += double{expected[i]} * double{expected[i]};
    }
    return norm > 0.0 ? std::sqrt(difference / norm) : std::sqrt(difference);
}

}  // namespace waste::test
