// Whole models of random weights from nothing but a config.json: for architectures that no release has.
#pragma once

#include <cstdint>
#include <string>

#include "container/result.h"
#include "engine/convert/recipe.h"

namespace waste::test {

/// Experts of a random model: mxfp4 is taken for q4 where the config's widths are no multiples of 32, which
/// mxfp4 cannot hold.
struct RandomModelRecipe {
    engine::TrunkRecipe trunk;
    kernels::Format experts;
};

/// Writes a container that engine::Model::open accepts, whatever the architecture. Weights depend on `seed`
/// only and are scaled so that activations stay near 1; norms are near 1. Nothing is synced.
Result<void> write_random_model(const std::string& config_text, const RandomModelRecipe& recipe,
                                uint32_t seed, const std::string& directory);

}  // namespace waste::test
