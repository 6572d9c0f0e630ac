// The small files that travel with a model: read once, checked, copied.
#pragma once

#include <string>
#include <vector>

#include "container/manifest.h"
#include "container/result.h"

namespace waste::engine {

struct CarriedContent {
    std::string name;
    std::string content;
};

/// The tokenizer, generation, chat, preprocessor and licence files that `directory` has, in name order.
Result<std::vector<CarriedContent>> read_carried_files(const std::string& directory);

container::CarriedFile describe(const CarriedContent& file);
const CarriedContent* find_carried(const std::vector<CarriedContent>& files, std::string_view name);

}  // namespace waste::engine
