// The JSON text of model.safetensors.index.json.
#include <cstdlib>

#include "container/safetensors_header.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    using namespace waste::container;
    const auto map = parse_weight_map({reinterpret_cast<const char*>(data), size}, "input");
    if (!map) return 0;
    for (size_t i = 0; i < map->entries.size(); ++i) {
        if (map->entries[i].shard >= map->shards.size()) abort();
        if (i > 0 && map->name(map->entries[i - 1]) >= map->name(map->entries[i])) abort();
    }
    for (const std::string& shard : map->shards) {
        if (shard.find('/') != std::string::npos || shard.front() == '.') abort();
    }
    return 0;
}
