// An opened model: a mapped container whose weights are bound to their places in the graph.
#pragma once

#include <string>

#include "container/reader.h"
#include "engine/config.h"
#include "engine/weights.h"

namespace waste::engine {

/// A mapped container with its weights bound. Immutable, thread-safe; outlives its sessions.
class Model {
  public:
    static Result<Model> open(const std::string& directory);

    const ModelConfig& config() const { return config_; }
    const container::Container& container() const { return container_; }
    const ModelWeights& weights() const { return weights_; }

  private:
    Model(container::Container container, ModelConfig config, ModelWeights weights)
        : container_(std::move(container)), config_(std::move(config)), weights_(std::move(weights)) {}

    container::Container container_;
    ModelConfig config_;
    ModelWeights weights_;
};

}  // namespace waste::engine
