#include "engine/profile.h"

namespace waste::engine {

std::string_view component_name(Component component) {
    constexpr std::array<std::string_view, kComponents> kNames{
        "residual",      "kda_projections", "kda_heads", "mla_projections",
        "mla_attention", "router",          "experts",   "mlp",
        "head"};
    return kNames[static_cast<size_t>(component)];
}

int64_t Profile::total() const {
    int64_t sum = 0;
    for (const int64_t spent : nanoseconds) sum += spent;
    return sum;
}

}  // namespace waste::engine
