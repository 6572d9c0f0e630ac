// waste plan --recipes: what each way of converting a model would take, before anything is written.
#pragma once

#include <string>

#include "engine/plan.h"

namespace waste::tools {

/// Prints a line for each recipe; `path` is a release's folder or its config.json. The exit code.
int compare_recipes(const std::string& path, const engine::SessionShape& shape, bool as_json);

}  // namespace waste::tools
