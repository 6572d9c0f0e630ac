// A sequence that runs on a model: the library's front door.
//
//   auto model = Model::open("kimi.waste");
//   auto session = Session::create(*model, {});
//   session->feed(ids);
//   pick_from(session->logits());
//
// Where anything can fail on size or content it fails in open() or create(), except for an expert that turns
// out to be damaged when it is first needed: feed() reports that. Weights are mapped: a file that is cut
// while it is in use, or a drive that fails, ends the process with SIGBUS.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "engine/executor.h"
#include "engine/model.h"
#include "engine/parallel.h"
#include "engine/state.h"
#include "engine/trace.h"
#include "engine/workspace.h"
#include "kernels/tier.h"

namespace waste::engine {

struct SessionOptions {
    int64_t context_length = 4096;  ///< most positions the sequence may have
    Compute compute = Compute::int8;
    kernels::Tier tier = kernels::best_tier();
    int threads = available_cpus();
};

/// One sequence and the threads that compute it. Used by one thread at a time.
class Session {
  public:
    static Result<Session> create(const Model& model, const SessionOptions& options);
    Session(Session&&) = default;

    /// Called after each token with its position and logits; returning false stops the feed after that token.
    using OnToken = std::function<bool(int64_t position, std::span<const float> logits)>;

    /// Appends tokens to the sequence. Without `on_token` only the last token's logits are computed. Ids
    /// outside the vocabulary and sequences past the context are refused before anything is computed. After
    /// any other error the sequence is unusable until clear().
    Result<void> feed(std::span<const int32_t> ids, const OnToken& on_token = nullptr);

    /// Of the last token fed [vocab_size]; valid until the next feed.
    std::span<const float> logits() const;

    int64_t position() const { return state_.position; }
    int64_t context_length() const { return state_.context_length; }
    const SequenceState& state() const { return state_; }
    const Executor& executor() const { return *executor_; }

    /// Back to the empty sequence.
    void clear();
    /// Null ends tracing; the trace must outlive its use.
    void set_trace(Trace* trace) { trace_ = trace; }

  private:
    Session(const Model& model, SequenceState state, Workspace workspace, std::unique_ptr<Executor> executor);
    Result<void> check(std::span<const int32_t> ids) const;
    Result<void> forward(int32_t id, bool want_logits);
    Result<void> run_layer(struct Step& step, int64_t layer, int64_t& snapshots);
    /// The input of a sub-layer: a mix of snapshots and stream, or the stream itself.
    const float* mix(const std::vector<float>& weight, int64_t snapshots);

    const Model* model_;
    SequenceState state_;
    Workspace workspace_;
    std::unique_ptr<Executor> executor_;
    Trace* trace_ = nullptr;
    bool broken_ = false;
};

}  // namespace waste::engine
