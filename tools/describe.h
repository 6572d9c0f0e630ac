// How models and amounts are put into words, for the commands that tell about them.
#pragma once

#include <cstdint>
#include <string>

#include "engine/config.h"

namespace waste::tools {

const char* family_name(engine::Family family);  ///< "Kimi K3"
const char* family_id(engine::Family family);    ///< "kimi_k3", for machines

/// "93 layers (69 KDA, 24 MLA), 92 of them with 896 experts, 16 a token"
std::string layers_text(const engine::ModelConfig& config);

/// "414.0 MiB": powers of two, as memory is sold.
std::string memory_text(uint64_t bytes);

}  // namespace waste::tools
