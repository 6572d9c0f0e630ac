// Reads for the tests of the drive reader: random files, memory to read into, waiting.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <deque>
#include <random>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/drive_reader.h"
#include "container/manifest.h"
#include "container/memory.h"

namespace waste::test {

using container::DriveRead;
using container::DriveReader;
using container::ReadState;
using container::SystemMemory;

inline constexpr uint64_t kBlock = container::kAlignment;

inline std::string random_text(size_t bytes, uint32_t seed) {
    std::mt19937_64 random(seed);
    std::string text(bytes, '\0');
    for (size_t i = 0; i + 8 <= bytes; i += 8) {
        const uint64_t value = random();
        std::memcpy(text.data() + i, &value, 8);
    }
    return text;
}

/// Reads with memory of their own, side by side.
class Reads {
  public:
    Reads(size_t count, uint64_t bytes_each)
        : memory_(*SystemMemory::map(count * bytes_each)), reads_(count) {
        for (size_t i = 0; i < count; i++) {
            reads_[i].to = memory_.data() + i * bytes_each;
            reads_[i].length = bytes_each;
            pointers_.push_back(&reads_[i]);
        }
    }
    DriveRead& operator[](size_t i) { return reads_[i]; }
    size_t size() const { return reads_.size(); }
    std::span<DriveRead* const> all() const { return pointers_; }
    std::string_view text(size_t i) const {
        return {reinterpret_cast<const char*>(reads_[i].to), reads_[i].length};
    }

  private:
    SystemMemory memory_;
    std::deque<DriveRead> reads_;
    std::vector<DriveRead*> pointers_;
};

inline void wait_for(const DriveRead& read) {
    ReadState state;
    while ((state = read.state.load(std::memory_order_acquire)) == ReadState::pending) read.state.wait(state);
}

inline void wait_for_all(const DriveReader& reader, uint32_t count) {
    for (uint32_t landed = reader.landed(); landed < count; landed = reader.landed()) {
        reader.wait_for_landing(landed);
    }
}

}  // namespace waste::test
