// Which experts a run chose, as text for cache simulation: one JSON line a token, in order of position.
//
//   {"position": 0, "layers": [[ids…], …]}                        one array a MoE layer, best first
//   {"position": 0, "layers": [[ids…], …], "scores": [[…], …]}    with scores: [experts] a layer
//
// Scores are the router's sigmoids, without the bias that is added to choose.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>

#include "container/file.h"
#include "engine/config.h"
#include "engine/trace.h"

namespace waste::engine {

/// One thread. A token's line is kept in memory from its first layer to its last: with scores, ten bytes or so an
/// expert, a layer and a token of the block.
class RoutingTrace : public Trace {
  public:
    /// The file has its name from finish() on, and the name with ".partial" until then.
    static Result<RoutingTrace> create(const std::string& path, const ModelConfig& config, bool with_scores);

    void on_vector(TracePoint, int64_t, int64_t, std::span<const float>) override {}
    void on_router(int64_t layer, int64_t position, std::span<const int32_t> ids,
                   std::span<const float> weights, float margin, std::span<const float> scores) override;

    /// Writes what is left. Reports the first error since create(), after which nothing was written.
    Result<void> finish();

  private:
    struct Line {
        std::string layers;
        std::string scores;
        int64_t layer_count = 0;
    };

    RoutingTrace(container::OutputFile file, int64_t layers, bool with_scores);
    void write_text();

    container::OutputFile file_;
    int64_t layers_;
    bool with_scores_;
    std::map<int64_t, Line> unfinished_;  ///< by position
    std::string text_;                    ///< finished lines not yet written
    uint64_t offset_bytes_ = 0;
    std::optional<Error> error_;
};

}  // namespace waste::engine
