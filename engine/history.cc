#include "engine/history.h"

#include <algorithm>

#include "kernels/kda.h"

namespace waste::engine {

std::string_view turn_role_name(TurnRole role) {
    switch (role) {
        case TurnRole::system:
            return "system";
        case TurnRole::user:
            return "user";
        case TurnRole::assistant:
            return "assistant";
        case TurnRole::tool:
            return "tool";
    }
    return "";
}

void History::append(std::span<const int32_t> ids) {
    const int64_t begin = position();
    tokens.insert(tokens.end(), ids.begin(), ids.end());
    const int64_t whole_chunks = position() / kernels::kKdaChunk;
    for (auto chunk = static_cast<int64_t>(chunked.size()); chunk < whole_chunks; chunk++) {
        chunked.push_back(chunk * kernels::kKdaChunk >= begin);
    }
}

void History::truncate(int64_t position) {
    position = std::min(position, this->position());
    tokens.resize(static_cast<size_t>(position));
    chunked.resize(static_cast<size_t>(position / kernels::kKdaChunk));
    while (!turns.empty() && turns.back().begin >= position) turns.pop_back();
    while (!seeds.empty() && seeds.back().position > position) seeds.pop_back();
}

void History::set_seed(uint64_t seed) {
    if (!seeds.empty() && seeds.back().position == position()) {
        seeds.back().seed = seed;
    } else {
        seeds.push_back({position(), seed});
    }
}

uint64_t History::seed() const {
    return seeds.empty() ? 0 : seeds.back().seed;
}

}  // namespace waste::engine
