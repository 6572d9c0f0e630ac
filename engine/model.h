// An opened model: a container whose weights are bound to their places in the graph, and where they are held.
#pragma once

#include <memory>
#include <string>

#include "container/reader.h"
#include "engine/config.h"
#include "engine/expert_store.h"
#include "engine/trunk.h"
#include "engine/weights.h"

namespace waste::engine {

/// Where a model's weights are held; the default maps everything.
struct Arrangement {
    TrunkOptions trunk;
    ExpertStoreOptions experts;
    container::DriveReaderOptions reader;  ///< for what is streamed
};

/// What the drive did for a model so far.
struct StreamCounters {
    ExpertCounters experts;
    container::DriveReaderCounters drive;
    uint64_t trunk_wait_nanoseconds = 0;

    StreamCounters operator-(const StreamCounters& earlier) const;
};

/// Immutable and thread-safe but for arrange(); outlives its sessions.
class Model {
  public:
    static Result<Model> open(const std::string& directory);

    /// Holds the weights in another way. Before there are sessions; after an error the model cannot be used.
    Result<void> arrange(const Arrangement& arrangement);

    const ModelConfig& config() const { return config_; }
    const container::Container& container() const { return *container_; }
    const ModelWeights& weights() const { return weights_; }
    Trunk& trunk() const { return *trunk_; }
    ExpertStore& experts() const { return *experts_; }
    StreamCounters counters() const;

  private:
    Model(std::unique_ptr<container::Container> container, ModelConfig config)
        : container_(std::move(container)), config_(std::move(config)) {}

    std::unique_ptr<container::Container> container_;
    ModelConfig config_;
    std::unique_ptr<Trunk> trunk_;
    std::unique_ptr<ExpertStore> experts_;
    ModelWeights weights_;
    std::unique_ptr<container::DriveReader> reader_;  // ends before the memory that it fills
};

}  // namespace waste::engine
