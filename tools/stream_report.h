// What the drive did for a run, for people and for machines.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "engine/model.h"

namespace waste::tools {

/// A few lines on what happened between two looks at a model whose weights stream; nothing for one that is mapped.
std::string stream_text(const engine::Model& model, const engine::StreamCounters& counters, int64_t tokens,
                        double seconds);
/// A table of one line a layer of experts.
std::string layers_text(const engine::Model& model, int64_t tokens);

nlohmann::ordered_json stream_json(const engine::Model& model, const engine::StreamCounters& counters,
                                   int64_t tokens, double seconds);

}  // namespace waste::tools
