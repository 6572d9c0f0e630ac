#include "container/safetensors_header.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "container/json_events.h"
#include "container/text.h"

namespace waste::container {
namespace {

struct DtypeRow {
    std::string_view spelling;
    Dtype dtype;
    int64_t bytes;
};

constexpr DtypeRow kDtypes[] = {
    {"F64", Dtype::f64, 8},    {"F32", Dtype::f32, 4},    {"F16", Dtype::f16, 2}, {"BF16", Dtype::bf16, 2},
    {"F8_E4M3", Dtype::f8, 1}, {"F8_E5M2", Dtype::f8, 1}, {"I64", Dtype::i64, 8}, {"I32", Dtype::i32, 4},
    {"I16", Dtype::i16, 2},    {"I8", Dtype::i8, 1},      {"U8", Dtype::u8, 1},   {"BOOL", Dtype::boolean, 1},
};

const DtypeRow& dtype_row(Dtype dtype) {
    return *std::find_if(std::begin(kDtypes), std::end(kDtypes),
                         [&](const DtypeRow& row) { return row.dtype == dtype; });
}

/// Turns events into tensors whose offsets still count from the end of the header.
class HeaderEvents : public JsonEvents {
  public:
    std::vector<HeaderTensor> tensors;

    bool start_object(size_t count) override {
        switch (state_) {
            case State::file:
                state_ = State::names;
                return true;
            case State::tensor:
                state_ = State::fields;
                return true;
            case State::metadata:
                state_ = State::metadata_entries;
                return true;
            default:
                return JsonEvents::start_object(count);
        }
    }

    bool key(std::string& text) override {
        if (state_ == State::names) {
            name_ = std::move(text);
            if (name_ == "__metadata__") {
                if (std::exchange(metadata_seen_, true)) return refuse_tensor("occurs twice");
                state_ = State::metadata;
            } else {
                dtype_.reset();
                shape_.reset();
                offsets_.reset();
                state_ = State::tensor;
            }
            return true;
        }
        if (state_ == State::metadata_entries) return true;
        if (text == "dtype" && !dtype_) {
            state_ = State::dtype;
        } else if (text == "shape" && !shape_) {
            state_ = State::shape;
        } else if (text == "data_offsets" && !offsets_) {
            state_ = State::offsets;
        } else {
            return refuse_tensor(fmt::format("field \"{}\" is unknown or occurs twice", printable(text)));
        }
        return true;
    }

    bool string(std::string& text) override {
        if (state_ == State::metadata_entries) return true;
        if (state_ != State::dtype) return JsonEvents::string(text);
        const auto* row = std::find_if(std::begin(kDtypes), std::end(kDtypes),
                                       [&](const DtypeRow& candidate) { return candidate.spelling == text; });
        if (row == std::end(kDtypes)) {
            return refuse(ErrorKind::unsupported,
                          fmt::format("tensor {}: unsupported dtype {}", printable(name_), printable(text)));
        }
        dtype_ = row->dtype;
        state_ = State::fields;
        return true;
    }

    bool start_array(size_t count) override {
        if (state_ == State::shape) {
            shape_.emplace();
            state_ = State::dimensions;
        } else if (state_ == State::offsets) {
            offsets_.emplace();
            state_ = State::offset_pair;
        } else {
            return JsonEvents::start_array(count);
        }
        return true;
    }

    bool number_unsigned(uint64_t value) override {
        if (state_ == State::dimensions) {
            if (shape_->size() == kMaxRank) {
                return refuse_tensor(fmt::format("more than {} dimensions", kMaxRank));
            }
            if (value > static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
                return refuse_tensor(fmt::format("dimension {} is too large", value));
            }
            shape_->push_back(static_cast<int64_t>(value));
            return true;
        }
        if (state_ == State::offset_pair) {
            offsets_->push_back(value);
            return offsets_->size() <= 2 || refuse_tensor("data_offsets must hold two numbers");
        }
        return JsonEvents::number_unsigned(value);
    }

    bool end_array() override {
        state_ = State::fields;
        return true;
    }

    bool end_object() override {
        if (state_ == State::names) {
            state_ = State::done;
            return true;
        }
        if (state_ == State::fields && !finish_tensor()) return false;
        state_ = State::names;
        return true;
    }

  private:
    // What the next event belongs to.
    enum class State {
        file,
        names,
        tensor,
        fields,
        dtype,
        shape,
        dimensions,
        offsets,
        offset_pair,
        metadata,
        metadata_entries,
        done,
    };

    bool refuse_tensor(const std::string& message) {
        return refuse(ErrorKind::corrupt, fmt::format("tensor {}: {}", printable(name_), message));
    }

    bool finish_tensor() {
        if (!dtype_ || !shape_ || !offsets_) return refuse_tensor("needs dtype, shape and data_offsets");
        if (offsets_->size() != 2) return refuse_tensor("data_offsets must hold two numbers");
        const uint64_t begin = (*offsets_)[0];
        const uint64_t end = (*offsets_)[1];
        if (begin > end) return refuse_tensor(fmt::format("data_offsets {} > {}", begin, end));
        const auto bytes = dense_bytes(*dtype_, *shape_, {});
        if (!bytes) return refuse_tensor(bytes.error().message);
        if (*bytes != end - begin) {
            return refuse_tensor(
                fmt::format("its shape needs {} bytes, data_offsets span {}", *bytes, end - begin));
        }
        tensors.push_back({std::move(name_), *dtype_, std::move(*shape_), begin, end});
        return true;
    }

    std::string where() const override {
        switch (state_) {
            case State::file:
            case State::done:
                return "the header";
            case State::metadata_entries:
                return "an entry of __metadata__";
            case State::dtype:
                return fmt::format("tensor {}: dtype", printable(name_));
            case State::shape:
            case State::dimensions:
                return fmt::format("tensor {}: shape", printable(name_));
            case State::offsets:
            case State::offset_pair:
                return fmt::format("tensor {}: data_offsets", printable(name_));
            default:
                return fmt::format("tensor {}", printable(name_));
        }
    }

    State state_ = State::file;
    bool metadata_seen_ = false;
    std::string name_;
    std::optional<Dtype> dtype_;
    std::optional<std::vector<int64_t>> shape_;
    std::optional<std::vector<uint64_t>> offsets_;
};

uint64_t read_header_length(std::span<const std::byte> file) {
    uint64_t length = 0;
    for (size_t i = 0; i < kHeaderLengthBytes; ++i) length |= std::to_integer<uint64_t>(file[i]) << (8 * i);
    return length;
}

/// The header's JSON text.
Result<std::string_view> header_text(std::span<const std::byte> file, const std::string& place) {
    if (file.empty()) return fail(ErrorKind::corrupt, place, "is empty: download it again");
    if (file.size() < kHeaderLengthBytes) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("truncated: {} long, too short for a safetensors file: download it again",
                                byte_count(file.size())));
    }
    const uint64_t length = read_header_length(file);
    if (length > kMaxHeaderBytes) {
        return fail(ErrorKind::corrupt, place,
                    fmt::format("is not a safetensors file: a header of {} bytes is over the limit of {}",
                                length, kMaxHeaderBytes));
    }
    if (length > file.size() - kHeaderLengthBytes) {
        const uint64_t needed = kHeaderLengthBytes + length;
        return fail(
            ErrorKind::corrupt, place,
            fmt::format("truncated: the header needs {} bytes, the file has {}; {} bytes are missing: "
                        "download it again",
                        needed, file.size(), needed - file.size()));
    }
    return std::string_view(reinterpret_cast<const char*>(file.data()) + kHeaderLengthBytes, length);
}

Result<void> check_names(const std::vector<HeaderTensor>& tensors, const std::string& place) {
    std::vector<std::string_view> names;
    names.reserve(tensors.size());
    for (const HeaderTensor& tensor : tensors) names.emplace_back(tensor.name);
    std::sort(names.begin(), names.end());
    const auto twice = std::adjacent_find(names.begin(), names.end());
    if (twice == names.end()) return {};
    return fail(ErrorKind::corrupt, place, fmt::format("tensor {} occurs twice", printable(*twice)));
}

/// Makes offsets count from the start of the file, and holds them against it and each other.
Result<void> place_tensors(std::vector<HeaderTensor>& tensors, uint64_t data_begin, uint64_t size,
                           const std::string& place) {
    uint64_t needed = data_begin;
    for (HeaderTensor& tensor : tensors) {
        if (__builtin_add_overflow(tensor.end, data_begin, &tensor.end)) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("tensor {}: data_offsets are too large", printable(tensor.name)));
        }
        tensor.begin += data_begin;
        needed = std::max(needed, tensor.end);
    }
    if (needed > size) {
        return fail(
            ErrorKind::corrupt, place,
            fmt::format("truncated: tensor data needs {} bytes, the file has {}; {} bytes are missing: "
                        "download it again",
                        needed, size, needed - size));
    }
    std::vector<const HeaderTensor*> order;
    for (const HeaderTensor& tensor : tensors) {
        if (tensor.begin != tensor.end) order.push_back(&tensor);
    }
    std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) { return a->begin < b->begin; });
    for (size_t i = 1; i < order.size(); ++i) {
        if (order[i]->begin < order[i - 1]->end) {
            return fail(ErrorKind::corrupt, place,
                        fmt::format("tensors {} and {} overlap", printable(order[i - 1]->name),
                                    printable(order[i]->name)));
        }
    }
    return {};
}

}  // namespace

std::string_view dtype_name(Dtype dtype) {
    return dtype == Dtype::f8 ? "F8" : dtype_row(dtype).spelling;
}

int64_t dtype_bytes(Dtype dtype) {
    return dtype_row(dtype).bytes;
}

Result<uint64_t> dense_bytes(Dtype dtype, std::span<const int64_t> shape, const std::string& place) {
    int64_t bytes = dtype_bytes(dtype);
    for (const int64_t dimension : shape) {
        if (dimension < 0 || __builtin_mul_overflow(bytes, dimension, &bytes)) {
            return fail(ErrorKind::corrupt, place, "its shape is negative or too large");
        }
    }
    return static_cast<uint64_t>(bytes);
}

uint64_t header_bytes(std::span<const std::byte> file) {
    return kHeaderLengthBytes + read_header_length(file);
}

Result<std::vector<HeaderTensor>> parse_safetensors_header(std::span<const std::byte> file,
                                                           const std::string& place) {
    const auto text = header_text(file, place);
    if (!text) return pass(text);
    HeaderEvents events;
    auto done = events.run(*text, place);
    if (done) done = check_names(events.tensors, place);
    if (done) done = place_tensors(events.tensors, header_bytes(file), file.size(), place);
    if (!done) return pass(done);
    return std::move(events.tensors);
}

}  // namespace waste::container
