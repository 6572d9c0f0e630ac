// Which experts a run chose, read back for simulation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "container/result.h"

namespace waste::bench {

struct CacheTrace {
    int64_t tokens = 0, layers = 0, experts = 0, top_k = 0;
    std::vector<int32_t> ids;   ///< [tokens][layers][top_k]
    std::vector<float> scores;  ///< [tokens][layers][experts], or empty

    std::span<const int32_t> chosen(int64_t token, int64_t layer) const {
        const auto k = static_cast<size_t>(top_k);
        return std::span(ids).subspan(static_cast<size_t>(token * layers + layer) * k, k);
    }
    std::span<const float> layer_scores(int64_t token, int64_t layer) const {
        const auto e = static_cast<size_t>(experts);
        return std::span(scores).subspan(static_cast<size_t>(token * layers + layer) * e, e);
    }
    int64_t keys() const { return layers * experts; }
};

/// What `waste run --trace-routing` writes: {"layers": [[ids…]…], "scores": …} a line. `experts` 0: as many as the
/// scores have, else the highest id seen and one.
Result<CacheTrace> read_cache_trace(const std::string& path, int64_t experts);

}  // namespace waste::bench
