// What a container says about text: its tokenizer, and the ids that end a turn.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "engine/model.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {

/// Nothing where the container has no tokenizer, an error where it is damaged.
Result<std::optional<Tokenizer>> open_tokenizer(const container::Container& container, int64_t vocab_size);

/// From generation_config.json, config.json and the vocabulary's [EOS]; `tokenizer` may be null.
Result<std::vector<int32_t>> find_stop_ids(const Model& model, const Tokenizer* tokenizer);

}  // namespace waste::engine
