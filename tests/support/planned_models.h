// Both releases as far as a plan knows them: from a config.json like theirs.
#pragma once

#include <optional>
#include <string>

#include "engine/plan_source.h"

namespace waste::test {

std::string k3_config();
std::string linear_config();

/// Writes a config.json and looks it up.
Result<engine::PlannedModel> look_up(const std::string& config_text,
                                     std::optional<engine::TrunkRecipe> trunk = {},
                                     std::optional<kernels::Format> experts = {});
/// The same, where it is known to work.
engine::PlannedModel planned(const std::string& config_text, std::optional<engine::TrunkRecipe> trunk = {});

}  // namespace waste::test
