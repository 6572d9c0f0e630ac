// A release on disk, checked against its own config before anything is written.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "container/safetensors.h"
#include "engine/config.h"
#include "engine/tensor_list.h"

namespace waste::engine {

/// w1, w2 or w3 of one expert: indices into the checkpoint. `scale` is unused for plain weights.
struct ExpertMatrixSource {
    size_t weight;
    size_t scale;
};

class Source {
  public:
    /// Checks presence, shape and dtype of every tensor the model needs, that nothing the config does not
    /// explain stands among the layers, and A_log's zero padding. Reads headers only, plus A_log.
    static Result<Source> open(const std::string& directory);

    const std::string& directory() const { return checkpoint_.directory(); }
    const std::string& config_text() const { return config_text_; }
    const ModelConfig& config() const { return config_; }
    const container::Checkpoint& checkpoint() const { return checkpoint_; }

    /// Routed experts are MXFP4 pairs (weight_packed, weight_scale).
    bool packed_experts() const { return packed_experts_; }
    const std::vector<TensorSpec>& trunk() const { return trunk_; }
    /// Checkpoint index of trunk()[i].
    size_t trunk_source(size_t i) const { return trunk_source_[i]; }
    Result<ExpertMatrixSource> expert_source(int64_t layer, int64_t expert, const char* which) const;

    /// What the release holds and this engine leaves out, one line a group: "vision_tower.* (165 tensors)".
    const std::vector<std::string>& ignored() const { return ignored_; }

  private:
    Source(std::string config_text, ModelConfig config, container::Checkpoint checkpoint)
        : config_text_(std::move(config_text)),
          config_(std::move(config)),
          checkpoint_(std::move(checkpoint)) {}
    Result<void> check_trunk(std::vector<bool>& used);
    Result<void> check_experts(std::vector<bool>& used);
    Result<void> check_expert(int64_t layer, int64_t expert, std::vector<bool>& used) const;
    Result<void> check_leftovers(const std::vector<bool>& used);
    Result<void> check_a_log_padding() const;

    std::string config_text_;
    ModelConfig config_;
    container::Checkpoint checkpoint_;
    std::vector<TensorSpec> trunk_;
    std::vector<size_t> trunk_source_;
    bool packed_experts_ = false;
    std::vector<std::string> ignored_;
};

}  // namespace waste::engine
