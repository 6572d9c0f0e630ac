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
#include <optional>
#include <span>
#include <vector>

#include "engine/checkpoints.h"
#include "engine/executor.h"
#include "engine/history.h"
#include "engine/look_ahead.h"
#include "engine/model.h"
#include "engine/parallel.h"
#include "engine/profile.h"
#include "engine/session_file.h"
#include "engine/state.h"
#include "engine/trace.h"
#include "engine/workspace.h"
#include "kernels/tier.h"

namespace waste::engine {

inline constexpr int64_t kDefaultBlockTokens = 512;
inline constexpr int kMostCheckpoints = 1024;

enum class KdaForm : uint8_t;  // layers/step.h

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
    CpuBinding binding;   ///< of the threads, the one that creates the session included
    int checkpoints = 0;  ///< most states to go back to that are kept; Checkpoints::bytes() each
    /// One is kept at every turn and whenever so many tokens have passed, a multiple of kernels::kKdaChunk.
    int64_t checkpoint_interval = 4096;

    SessionShape shape() const;
};

/// What going back cost.
struct Rewound {
    int64_t evaluated = 0;  ///< tokens between a checkpoint and the position, which were computed again
    std::string warning;    ///< a checkpoint in a file that was damaged and passed over; empty: none
};

/// One sequence, everything it carries, and the threads that compute it. Used by one thread at a time; sessions of one
/// model do not touch each other.
class Session {
  public:
    static Result<Session> create(const Model& model, const SessionOptions& options);
    Session(Session&&) = default;

    /// Called for each token in order with its position and logits.
    using OnToken = std::function<void(int64_t position, std::span<const float> logits)>;
    /// Called after each block of tokens; returning false stops the feed there, with position() behind the block.
    using OnBlock = std::function<bool()>;
    /// Called before each layer of each block, by the thread that feeds: the layer of how many, the block's tokens.
    using OnLayer = std::function<void(int64_t layer, int64_t layers, int64_t tokens)>;

    /// Appends tokens to the sequence, computed in blocks. Without `on_token` only the last token's logits are
    /// computed. Ids outside the vocabulary and sequences past the context are refused before anything is
    /// computed. After any other error the sequence is unusable until rewind() or clear().
    ///
    /// Bits: KDA evaluates tokens that fill an aligned chunk of 64 positions within one feed in another form than
    /// single ones (kernels/kda.h), so feeding a sequence in other pieces may differ by rounding. The same calls
    /// give the same bits, whatever the block size.
    Result<void> feed(std::span<const int32_t> ids, const OnToken& on_token = nullptr,
                      const OnBlock& on_block = nullptr);

    /// Of the last token [vocab_size]; valid until the next feed. Empty where they were not computed: before the first
    /// token, and where a feed was stopped.
    std::span<const float> logits() const;

    /// A turn of a conversation begins with the next token. Keeps a checkpoint.
    void begin_turn(TurnRole role);
    /// Keeps a checkpoint here, if any are kept at all.
    void keep_checkpoint();
    /// How tokens are drawn from here on. What is drawn at a position depends on the logits, the position and the seed
    /// alone, so that a session that goes back draws the same again.
    void set_sampler(const SamplerOptions& options);
    SamplerOptions sampler() const;  ///< with the seed of the next token

    /// Back to where the sequence had only `position` tokens: from the nearest checkpoint on, what is missing is
    /// evaluated again in the form it was evaluated in, so what comes out has the bits of a session that never went
    /// further. (Where `position` lies inside a chunk that was evaluated as one, those of a session that was fed up to
    /// there.) `on_block` as for feed(); stopped by it the sequence ends earlier. Also mends a session after an error.
    /// Without `with_logits`, for where a feed is to follow, logits() may be empty afterwards.
    Result<Rewound> rewind(int64_t position, const OnBlock& on_block = nullptr, bool with_logits = true);
    /// After an error: back to the last checkpoint, or to the empty sequence, without computing anything. Returns the
    /// position.
    int64_t recover();

    /// Writes everything to a file, which appears whole or not at all; what another file of this session holds
    /// already is taken from there. A file in its place that is not this session's is refused unless `replace`.
    Result<SaveReport> save(const std::string& path, const SaveOptions& options = {});
    /// Takes the place of whatever this session was. After an error it is empty. With a position, which must be that of
    /// one of the file's checkpoints or its end, as it was there.
    Result<void> load(const SavedSession& saved, std::optional<int64_t> position = std::nullopt);

    /// Keeps state and tokens as the beginning of another conversation, which lies in no file.
    void start_anew(std::vector<Turn> turns, const SamplerOptions& sampler);

    const Model& model() const { return *model_; }
    const History& history() const { return history_; }
    std::span<const int32_t> tokens() const { return history_.tokens; }
    std::span<const Checkpoint> checkpoints() const { return checkpoints_.kept(); }
    int64_t position() const { return history_.position(); }
    int64_t context_length() const { return state_.context_length; }
    const SequenceState& state() const { return state_; }
    const Executor& executor() const { return *executor_; }

    /// Back to the empty sequence.
    void clear();
    /// Null ends tracing; the trace must outlive its use.
    void set_trace(Trace* trace) { trace_ = trace; }
    /// For showing how far a block is; null ends it. A block cannot be stopped between its layers: the recurrent state
    /// of those before has already moved on.
    void set_on_layer(OnLayer on_layer) { on_layer_ = std::move(on_layer); }
    /// Null ends profiling; the profile is added to and must outlive its use.
    void set_profile(Profile* profile) { profile_ = profile; }

  private:
    Session(const Model& model, SequenceState state, Checkpoints checkpoints, Workspace workspace,
            std::unique_ptr<Executor> executor, const SessionOptions& options);
    Result<void> check(std::span<const int32_t> ids) const;
    /// Tokens that may be computed together from here on.
    int64_t block_at_position() const;
    Result<void> forward(std::span<const int32_t> ids, KdaForm form, bool last_block,
                         const OnToken& on_token);
    /// To the last state to go on from in order to stand at `position`, with logits if they are needed.
    void go_back(int64_t position, bool with_logits, std::string& warning);
    Result<void> evaluate_again(const History& history, const OnBlock& on_block, int64_t& evaluated);
    void keep_on_grid(int64_t position_before);
    Result<void> write_sections(container::SectionWriter& writer, const SaveOptions& options) const;
    Result<void> write_recurrent(container::SectionWriter& writer, int64_t copy,
                                 std::span<const float> recurrent, std::span<const float> logits,
                                 const SaveOptions& options) const;
    Result<void> write_latents(container::SectionWriter& writer, const SaveOptions& options) const;
    Result<void> write_checkpoints(container::SectionWriter& writer, const SaveOptions& options) const;
    Result<void> read_sections(const SavedSession& saved, int64_t position);
    Result<void> run_layer(struct Step& step, int64_t layer, int64_t& snapshots);
    void guess_next(struct Step& step, int64_t layer, int64_t snapshots, Guess when);
    void run_head(Step& step, int64_t snapshots, int64_t begin, const OnToken& on_token);
    /// out[t] = rms_norm(mix of snapshots and stream, or the stream itself) for tokens [begin, tokens).
    void mix_and_norm(Step& step, const std::vector<float>& mix_weight, int64_t snapshots,
                      std::span<const float> norm_weight, int64_t begin, float* out);

    const Model* model_;
    SequenceState state_;  ///< its position is history_'s, but for a broken session
    History history_;
    SamplerOptions sampler_;
    Checkpoints checkpoints_;
    int64_t checkpoint_interval_;
    /// The file that was last saved or loaded, and up to which position its latents are still those in memory.
    std::shared_ptr<const container::SectionFile> file_;
    int64_t unchanged_ = 0;
    Workspace workspace_;
    std::unique_ptr<Executor> executor_;
    std::unique_ptr<LookAhead> look_ahead_;  ///< null: off
    int64_t block_tokens_;
    const float* logits_ = nullptr;  ///< the last token's row in the workspace
    Trace* trace_ = nullptr;
    OnLayer on_layer_;
    Profile* profile_ = nullptr;
    bool broken_ = false;
};

}  // namespace waste::engine
