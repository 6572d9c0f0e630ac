// Byte-pair encoding of one piece of text: the pair of neighbours that forms the token of lowest rank is
// joined first, the leftmost on ties, until no pair forms a token. A piece that is a token is taken whole.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "engine/text/vocabulary.h"

namespace waste::engine {

/// Holds scratch memory, so one thread. Cost: O(n log n) for a piece of n bytes (a pasted blob can be one
/// piece of 25,000 characters), by a heap of pairs in which outdated entries are skipped.
class Merger {
  public:
    /// `vocabulary` must outlive the merger.
    explicit Merger(const Vocabulary& vocabulary) : vocabulary_(vocabulary) {}

    /// Appends the ids of `piece`, which has less than 2^31 bytes. Any bytes will do.
    void append(std::string_view piece, std::vector<int32_t>& ids);

  private:
    void start(std::string_view piece);
    void join(std::string_view piece, uint32_t left);
    void update_pair(std::string_view piece, uint32_t left);

    const Vocabulary& vocabulary_;
    // A part is named by the offset of its first byte. All three are indexed by it.
    std::vector<uint32_t> next_;      ///< the part behind; the piece's length for the last
    std::vector<uint32_t> previous_;  ///< the part before; kNone for the first
    std::vector<uint32_t> rank_;  ///< of the token this part forms with the next one; kNone if it forms none
    std::vector<uint64_t> heap_;  ///< rank in the high half, part in the low half, smallest on top
};

}  // namespace waste::engine
