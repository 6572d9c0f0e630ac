// A zeroed, 64-byte aligned block of floats whose pages are taken from the system only when touched.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <memory>

#include "container/memory.h"
#include "container/result.h"

namespace waste::engine {

/// Owns its memory; move-only; the size is fixed at birth.
class Buffer {
  public:
    Buffer() = default;

    static Result<Buffer> allocate(int64_t floats, const char* what) {
        Buffer buffer;
        const auto bytes = static_cast<size_t>(floats) * sizeof(float);
        if (bytes >= container::kHugePageBytes) {
            if (auto memory = container::SystemMemory::map(bytes)) {
                buffer.pages_ = std::move(*memory);
                buffer.data_ = reinterpret_cast<float*>(buffer.pages_.data());
            }
        } else {
            buffer.block_.reset(static_cast<std::byte*>(std::calloc(bytes + kAlign, 1)));
            const auto address = reinterpret_cast<uintptr_t>(buffer.block_.get());
            if (address != 0) {
                buffer.data_ = reinterpret_cast<float*>((address + kAlign - 1) / kAlign * kAlign);
            }
        }
        if (!buffer.data_) {
            return fail(ErrorKind::capacity, what,
                        "not enough memory for " + std::to_string(bytes >> 20) + " MiB; try a smaller --ctx");
        }
        buffer.size_ = floats;
        return buffer;
    }

    float* data() { return data_; }
    const float* data() const { return data_; }
    int64_t size() const { return size_; }

  private:
    static constexpr size_t kAlign = 64;
    struct Free {
        void operator()(std::byte* p) const { std::free(p); }
    };
    std::unique_ptr<std::byte, Free> block_;  ///< a small block, or
    container::SystemMemory pages_;           ///< a large one
    float* data_ = nullptr;
    int64_t size_ = 0;
};

}  // namespace waste::engine
