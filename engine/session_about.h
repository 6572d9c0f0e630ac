// The description in a session file, as JSON: all that is neither tokens nor floats.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "engine/history.h"
#include "engine/text/sampler.h"

namespace waste::engine {

struct SavedCheckpoint {
    int64_t position;
    bool at_turn;
    bool has_logits;
};

struct SessionAbout {
    std::string model;     ///< directory it ran from, for people
    int64_t saved_at = 0;  ///< seconds since 1970
    int64_t position = 0;
    bool has_logits = false;
    std::vector<Turn> turns;
    std::vector<SeedChange> seeds;
    SamplerOptions sampler;
    std::vector<SavedCheckpoint> checkpoints;
};

std::string about_text(const SessionAbout& about);
/// `place` names the file in errors. What is accepted is consistent in itself: positions ascend and lie within the
/// sequence.
Result<SessionAbout> parse_about(std::string_view text, const std::string& place);

}  // namespace waste::engine
