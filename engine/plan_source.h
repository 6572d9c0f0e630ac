// What a plan needs to know of a model, from whichever form of it is at hand.
#pragma once

#include <optional>
#include <string>

#include "engine/convert/recipe.h"
#include "engine/plan.h"

namespace waste::engine {

enum class PlanSource {
    container,  ///< sizes are those of its files
    release,    ///< sizes are those `waste convert` would write, from the checked headers of the release
    config,     ///< the same from config.json alone, assuming that the release stores matrices in bf16
};

struct PlannedModel {
    PlanSource source;
    ModelConfig config;
    ContainerSizes sizes;
    std::string trunk_recipe;
    std::string expert_recipe;
    std::string fingerprint;  ///< of a container; else empty
};

/// `path`: a container, a release's folder, or a config.json; a folder with a config.json and no weights yet
/// stands for its config.json. The recipe is for models that are not converted; naming one for a container is
/// an error.
Result<PlannedModel> look_up_model(const std::string& path, std::optional<TrunkRecipe> trunk,
                                   std::optional<kernels::Format> experts);

}  // namespace waste::engine
