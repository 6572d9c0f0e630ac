// States behind prompts that were read, so that no prompt is read twice. A directory of session files, shared by all
// runs of all models; the tokens say which one fits.
//
// What is reused lies on the grid of chunks and was evaluated in the form of chunks, so a prompt gives the same bits
// with the cache as without it. Where a prompt leaves a kept one, a checkpoint is left: the second prompt with the same
// beginning finds it, however the first went on.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "container/result.h"
#include "engine/session.h"

namespace waste::engine {

/// Damaged entries are removed, and a cache that cannot be written is no reason to fail: what happened is a warning.
class PromptCache {
  public:
    /// Makes the directory if need be. The files together stay below `most_bytes`: those not used for longest go.
    static Result<PromptCache> open(const std::string& directory, uint64_t most_bytes);

    /// Feeds a prompt to an empty session, from the longest kept beginning on, and keeps what is new. Returns how many
    /// tokens did not have to be read. Stopped by `on_block` the session ends earlier.
    Result<int64_t> read(Session& session, std::span<const int32_t> ids, const Session::OnBlock& on_block);

    const std::string& warning() const { return warning_; }  ///< the last one; empty: none

  private:
    struct Match {
        std::string path;
        std::optional<SavedSession> saved;
        int64_t usable = 0;  ///< where a state lies that the prompt can go on from
        int64_t common = 0;  ///< tokens in common with any entry, down to the grid
    };

    PromptCache(std::string directory, uint64_t most_bytes)
        : directory_(std::move(directory)), most_bytes_(most_bytes) {}
    Match find(const std::string& fingerprint, int64_t context_length, std::span<const int32_t> ids);
    /// Loads the match; a session that is empty again where that fails.
    void resume(Session& session, const Match& match);
    void keep(Session& session);
    void remove_oldest();
    void warn(const Error& error) { warning_ = error.text(); }

    std::string directory_;
    uint64_t most_bytes_;
    std::string warning_;
};

}  // namespace waste::engine
