// Golden tensors for tests: a small reader of trusted safetensors files, apart from the engine's own so that
// one can check the other. Whatever is missing or of another type throws, which GoogleTest reports with its
// text.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

namespace waste::test {

template <typename T>
struct GoldenTensor {
    std::vector<int64_t> shape;
    std::vector<T> values;

    int64_t dim(size_t axis) const { return shape.at(axis); }
    /// Row `index` of the tensor seen as [.., width].
    std::span<const T> row(int64_t index, int64_t width) const {
        return std::span<const T>(values).subspan(static_cast<size_t>(index * width),
                                                  static_cast<size_t>(width));
    }
    const T* data() const { return values.data(); }
};

class GoldenFile {
  public:
    static GoldenFile load(const std::string& path);

    bool has(const std::string& name) const { return entries_.count(name) > 0; }
    std::vector<std::string> names() const;
    /// "F32", "I32", …
    const std::string& dtype(const std::string& name) const { return entries_.at(name).dtype; }
    GoldenTensor<float> f32(const std::string& name) const;
    GoldenTensor<int32_t> i32(const std::string& name) const;
    GoldenTensor<uint8_t> u8(const std::string& name) const;

  private:
    struct Entry {
        std::string dtype;
        std::vector<int64_t> shape;
        size_t begin;
        size_t end;
    };

    template <typename T>
    GoldenTensor<T> read(const std::string& name, const std::string& dtype) const;

    std::string path_;
    std::map<std::string, Entry> entries_;
    std::vector<char> data_;
};

/// The kernels' goldens, read once.
const GoldenFile& kernel_goldens();

/// |got - expected|_2 / |expected|_2; NaN in `got` makes it NaN, which no limit admits.
double relative_error(std::span<const float> got, std::span<const float> expected);

}  // namespace waste::test
