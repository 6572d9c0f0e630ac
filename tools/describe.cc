#include "tools/describe.h"

#include <fmt/format.h>

#include <iterator>

namespace waste::tools {

const char* family_name(engine::Family family) {
    return family == engine::Family::kimi_k3 ? "Kimi K3" : "Kimi-Linear";
}

const char* family_id(engine::Family family) {
    return family == engine::Family::kimi_k3 ? "kimi_k3" : "kimi_linear";
}

std::string layers_text(const engine::ModelConfig& config) {
    return fmt::format("{} layers ({} KDA, {} MLA), {} of them with {} experts, {} a token",
                       config.num_hidden_layers, config.kda_layer_count(), config.mla_layer_count(),
                       config.moe_layer_count(), config.num_experts, config.num_experts_per_token);
}

std::string memory_text(uint64_t bytes) {
    constexpr const char* kUnits[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 1023.95 && unit + 1 < std::size(kUnits)) {
        value /= 1024;
        unit++;
    }
    return unit == 0 ? fmt::format("{} B", bytes)
                     : fmt::format("{:.{}f} {}", value, value < 99.995 ? 2 : 1, kUnits[unit]);
}

}  // namespace waste::tools
