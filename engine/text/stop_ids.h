// The ids that end a generation.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "container/result.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {

/// Sorted, without repetition: `eos_token_id` of generation_config.json (a number or a list; the text may be
/// empty where the release has no such file), the ids config.json names, and the tokenizer's [EOS] where
/// there is one; `tokenizer` may be null. An id that is not below `vocab_size` is refused: it could never end
/// anything. `place` names generation_config.json.
Result<std::vector<int32_t>> stop_ids(const Tokenizer* tokenizer, std::string_view generation_config_json,
                                      std::span<const int64_t> config_eos_ids, int64_t vocab_size,
                                      const std::string& place);

}  // namespace waste::engine
