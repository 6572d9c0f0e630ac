// A profile as people and as programs read it.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "engine/profile.h"

namespace waste::tools {

/// One line a component that took time: milliseconds a token and share, longest first.
std::string profile_table(const engine::Profile& profile, int64_t tokens);

/// Milliseconds a token by component name.
nlohmann::ordered_json profile_json(const engine::Profile& profile, int64_t tokens);

}  // namespace waste::tools
