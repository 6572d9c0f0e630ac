// How far the reading of a prompt is, on stderr: by blocks, and by layers where the model streams, as a block may take
// minutes then.
#pragma once

#include <cstdint>

#include "engine/session.h"
#include "tools/terminal.h"

namespace waste::tools {

/// While it lives it is told by the session, which outlives it and does not move.
class PromptProgress {
  public:
    /// `tokens`: of the prompt, to be fed from here on. Quiet: says nothing.
    PromptProgress(engine::Session& session, int64_t tokens, bool quiet);
    ~PromptProgress();
    PromptProgress(const PromptProgress&) = delete;
    PromptProgress& operator=(const PromptProgress&) = delete;

    void after_block();

  private:
    void before_layer(int64_t layer, int64_t layers, int64_t block);

    engine::Session& session_;
    const int64_t tokens_;
    const bool quiet_;
    const int64_t known_;  ///< tokens before
    const uint64_t drive_before_;
    ProgressLine line_{"tokens"};
    bool told_ = false;  ///< that a block is not broken off
};

}  // namespace waste::tools
