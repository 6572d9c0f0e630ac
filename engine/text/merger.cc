#include "engine/text/merger.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace waste::engine {
namespace {

constexpr uint32_t kNone = UINT32_MAX;

}  // namespace

void Merger::append(std::string_view piece, std::vector<int32_t>& ids) {
    if (const auto whole = vocabulary_.find(piece)) {
        ids.push_back(*whole);
        return;
    }
    start(piece);
    while (!heap_.empty()) {
        std::pop_heap(heap_.begin(), heap_.end(), std::greater<>());
        const uint64_t entry = heap_.back();
        heap_.pop_back();
        const auto left = static_cast<uint32_t>(entry);
        const bool outdated = rank_[left] != entry >> 32;
        if (!outdated) join(piece, left);
    }
    for (uint32_t part = 0; part < piece.size(); part = next_[part]) {
        ids.push_back(*vocabulary_.find(piece.substr(part, next_[part] - part)));
    }
}

void Merger::start(std::string_view piece) {
    const size_t size = piece.size();
    next_.resize(size);
    previous_.resize(size);
    rank_.resize(size);
    heap_.clear();
    for (uint32_t part = 0; part < size; ++part) {
        next_[part] = part + 1;
        previous_[part] = part == 0 ? kNone : part - 1;
    }
    for (uint32_t part = 0; part < size; ++part) update_pair(piece, part);
}

void Merger::join(std::string_view piece, uint32_t left) {
    const uint32_t right = next_[left];
    const uint32_t after = next_[right];
    next_[left] = after;
    rank_[right] = kNone;
    if (after < piece.size()) previous_[after] = left;
    update_pair(piece, left);
    if (previous_[left] != kNone) update_pair(piece, previous_[left]);
}

void Merger::update_pair(std::string_view piece, uint32_t left) {
    rank_[left] = kNone;
    const uint32_t right = next_[left];
    if (right >= piece.size()) return;
    const uint32_t length = next_[right] - left;
    if (length > vocabulary_.longest_token_bytes()) return;
    const auto id = vocabulary_.find(piece.substr(left, length));
    if (!id) return;
    rank_[left] = static_cast<uint32_t>(*id);
    heap_.push_back(uint64_t{rank_[left]} << 32 | left);
    std::push_heap(heap_.begin(), heap_.end(), std::greater<>());
}

}  // namespace waste::engine
