// Copies of a session's recurrent part, to go back to: a KDA state cannot be rolled back. What only grows with the
// sequence (tokens, latents) needs no copy.
//
// At most so many are kept. One too many and the least useful goes: few tokens would have to be evaluated again without
// it, and it lies far behind the end. So they are dense at the end and ever sparser towards the beginning.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "container/section_file.h"
#include "engine/buffer.h"
#include "engine/config.h"

namespace waste::engine {

/// Where a checkpoint lies in a session file (session_file.h).
struct StoredCheckpoint {
    std::shared_ptr<const container::SectionFile> file;
    uint32_t index;
};

struct Checkpoint {
    int64_t position;  ///< tokens consumed
    bool at_turn;      ///< a turn begins here; worth more than one on the grid
    bool has_logits;   ///< of the token before `position`
    int slot;          ///< in memory; -1: only stored
    std::optional<StoredCheckpoint> stored;
};

class Checkpoints {
  public:
    /// Room for `most` in memory, which is taken from the system when it is used.
    static Result<Checkpoints> allocate(const ModelConfig& config, int most);
    /// Memory of one: recurrent part and logits.
    static int64_t bytes(const ModelConfig& config);

    int most() const { return most_; }
    std::span<const Checkpoint> kept() const { return kept_; }  ///< ascending by position, which is unique

    /// Copies the state at `position`, which is behind all others, or marks the one that is there. `logits` may be
    /// empty. Does nothing where none are to be kept.
    void keep(int64_t position, bool at_turn, std::span<const float> recurrent,
              std::span<const float> logits);
    /// Takes over one that lies in a file, behind all others.
    void adopt(const Checkpoint& stored);
    /// The last one to go on from in order to stand at `position`, where needed with logits; null: none.
    const Checkpoint* nearest(int64_t position, bool with_logits) const;
    /// Copies it back; `logits [vocab_size]` is left alone where it has none. One from a file is verified.
    Result<void> restore(const Checkpoint& checkpoint, std::span<float> recurrent,
                         std::span<float> logits) const;
    /// The copies of one that has a slot.
    std::span<const float> recurrent(const Checkpoint& checkpoint) const;
    std::span<const float> logits(const Checkpoint& checkpoint) const;

    void forget_after(int64_t position);
    void forget(int64_t position);
    /// A file holds them now, in the order of kept().
    void set_stored(const std::shared_ptr<const container::SectionFile>& file);

  private:
    int64_t offset(int slot) const { return slot * (recurrent_floats_ + vocab_size_); }
    /// One that no checkpoint has; there is one while fewer than `most` are kept.
    int free_slot() const;
    void drop_least_useful(int64_t end);

    int most_ = 0;
    int64_t recurrent_floats_ = 0, vocab_size_ = 0, kda_layers_ = 0;
    Buffer memory_;
    std::vector<Checkpoint> kept_;
};

}  // namespace waste::engine
