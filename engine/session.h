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
#include "engine/look_ahead.h"
#include "engine/model.h"
#include "engine/parallel.h"
#include "engine/profile.h"
#include "engine/state.h"
#include "engine/trace.h"
#include "engine/workspace.h"
#include "kernels/tier.h"

namespace waste::engine {

inline constexpr int64_t kDefaultBlockTokens = 512;

struct SessionOptions {
    int64_t context_length = 4096;  ///< most positions the sequence may have
    /// Most tokens computed together: a multiple of kernels::kKdaChunk. More read the weights less often and take
    /// more memory; results are the same.
    int64_t block_tokens = kDefaultBlockTokens;
    Compute compute = Compute::int8;
    kernels::Tier tier = kernels::best_tier();
    int threads = available_cpus();
    /// Start reads of the experts that the next layer is likely to choose; for models whose experts stream.
    bool look_ahead = true;
    CpuBinding binding;  ///< of the threads, the one that creates the session included

    WorkspaceShape workspace() const;
};

/// One sequence and the threads that compute it. Used by one thread at a time.
class Session {
  public:
    static Result<Session> create(const Model& model, const SessionOptions& options);
    Session(Session&&) = default;

    /// Called for each token in order with its position and logits.
    using OnToken = std::function<void(int64_t position, std::span<const float> logits)>;
    /// Called after each block of tokens; returning false stops the feed there, with position() behind the block.
    using OnBlock = std::function<bool()>;

    /// Appends tokens to the sequence, computed in blocks. Without `on_token` only the last token's logits are
    /// computed. Ids outside the vocabulary and sequences past the context are refused before anything is
    /// computed. After any other error the sequence is unusable until clear().
    ///
    /// Bits: KDA evaluates tokens that fill an aligned chunk of 64 positions within one feed in another form than
    /// single ones (kernels/kda.h), so feeding a sequence in other pieces may differ by rounding. The same calls
    /// give the same bits, whatever the block size.
    Result<void> feed(std::span<const int32_t> ids, const OnToken& on_token = nullptr,
                      const OnBlock& on_block = nullptr);

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
    /// Null ends profiling; the profile is added to and must outlive its use.
    void set_profile(Profile* profile) { profile_ = profile; }

  private:
    Session(const Model& model, SequenceState state, Workspace workspace, std::unique_ptr<Executor> executor,
            const SessionOptions& options);
    Result<void> check(std::span<const int32_t> ids) const;
    Result<void> forward(std::span<const int32_t> ids, bool last_block, const OnToken& on_token);
    Result<void> run_layer(struct Step& step, int64_t layer, int64_t& snapshots);
    void guess_next(struct Step& step, int64_t layer, int64_t snapshots, Guess when);
    void run_head(Step& step, int64_t snapshots, int64_t begin, const OnToken& on_token);
    /// out[t] = rms_norm(mix of snapshots and stream, or the stream itself) for tokens [begin, tokens).
    void mix_and_norm(Step& step, const std::vector<float>& mix_weight, int64_t snapshots,
                      std::span<const float> norm_weight, int64_t begin, float* out);

    const Model* model_;
    SequenceState state_;
    Workspace workspace_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<LookAhead> look_ahead_;  ///< null: off
    int64_t block_tokens_;
    const float* logits_;  ///< the last token's row in the workspace
    Trace* trace_ = nullptr;
    Profile* profile_ = nullptr;
    bool broken_ = false;
};

}  // namespace waste::engine
