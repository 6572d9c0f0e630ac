// config.json: whatever is accepted must yield a tensor list and sizes without overflow.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "engine/config.h"
#include "engine/state.h"
#include "engine/tensor_list.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto config = waste::engine::parse_config(text, "fuzz");
    if (!config) return 0;
    waste::engine::trunk_tensors(*config);
    waste::engine::unused_tensors(*config);
    const auto state = waste::engine::state_bytes(*config);
    if (state.total(config->max_context) <= 0) __builtin_trap();
    return 0;
}
