// The routed experts of one layer for a block of tokens: asked for as soon as the router has chosen, computed as they
// land, so that what can be computed meanwhile hides the reads.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "engine/layers/step.h"

namespace waste::engine {

class RoutedExperts {
  public:
    /// The workspace holds the router's choice. Begins the reads of what is missing, as far as the cache has slots.
    RoutedExperts(Step& step, size_t bank);
    ~RoutedExperts();
    RoutedExperts(const RoutedExperts&) = delete;
    RoutedExperts& operator=(const RoutedExperts&) = delete;

    /// expert_out[row] = down(glu(gate z, up z)) for each pair of token and expert, in the order of `pairs`;
    /// z [tokens][expert_input_size]. Once.
    Result<void> run(const float* z);

  private:
    void group_by_expert();
    void list_tasks();
    void ask_for_more();
    Result<void> run_one_token();
    Result<void> run_landed(std::span<const int32_t> indices);
    Result<void> run_several_tokens();
    Result<void> run_task(const ExpertTask& task, float* scratch);
    void wait_for_turn(int32_t index);
    void compute(const ExpertTask& task, const container::ExpertView& view, float* scratch) const;
    void take_rows(const ExpertTask& task, ExpertScratch& s) const;
    void multiply(const kernels::Panels& w, const Input& x, float* y, int64_t y_stride) const;

    Step& step_;
    size_t bank_;
    kernels::Format format_;
    bool int8_;
    int32_t experts_ = 0;  ///< that the block uses, once each in workspace.expert_order
    // Leases are taken in that order; a task waits until the one of its expert is.
    std::mutex mutex_;
    std::atomic<int32_t> leased_{0};    ///< [0, leased_) have or had theirs
    std::atomic<int32_t> finished_{0};  ///< leases given back
};

}  // namespace waste::engine
