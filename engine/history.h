// How a sequence came to be: what a session needs, beside its state, to go back to an earlier position and to draw
// there what it drew before.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "engine/text/sampler.h"

namespace waste::engine {

enum class TurnRole : uint8_t { system, user, assistant, tool };
std::string_view turn_role_name(TurnRole role);  ///< "system", "user", …

/// A part of a conversation: from its first token to the next turn's. A user's turn ends with whatever markup asks
/// for the answer, so an assistant's begins with the first generated token.
struct Turn {
    TurnRole role;
    int64_t begin;

    bool operator==(const Turn&) const = default;
};

/// From `position` on tokens are drawn with `seed`.
struct SeedChange {
    int64_t position;
    uint64_t seed;

    bool operator==(const SeedChange&) const = default;
};

struct History {
    std::vector<int32_t> tokens;
    std::vector<Turn> turns;        ///< ascending; two may begin at one position
    std::vector<SeedChange> seeds;  ///< ascending, at most one a position
    /// For each whole chunk of kernels::kKdaChunk positions: 1 where it was evaluated in the form of chunks, 0 where
    /// token by token (Session::feed). Evaluated again in the same form it has the same bits.
    std::vector<uint8_t> chunked;

    int64_t position() const { return static_cast<int64_t>(tokens.size()); }
    /// Tokens evaluated together, whose first stands at position().
    void append(std::span<const int32_t> ids);
    /// Forgets what is at `position` and later. A seed set there stays: the next token is drawn with it.
    void truncate(int64_t position);
    void set_seed(uint64_t seed);
    uint64_t seed() const;  ///< of the next token; 0 where none was set

    bool operator==(const History&) const = default;
};

}  // namespace waste::engine
