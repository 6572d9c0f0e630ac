// What the tests of this folder share: the demo model's tokenizer files and a tiny vocabulary made up here.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"

namespace waste::engine::test {

inline constexpr int64_t kDemoVocabSize = 6144;
inline constexpr int32_t kDemoBase = 5888;  ///< the number of ranks

/// Contents of a file under tests/data/demo-model; fails the test that asks if it cannot be read.
std::string read_demo_file(std::string_view name);

/// The demo model's tokenizer, made once.
const Tokenizer& demo_tokenizer();

std::string encode_base64(std::string_view bytes);

/// A rank file: all single bytes in order, then `merges`.
std::string rank_file(const std::vector<std::string>& merges);

/// A tokenizer_config.json that names the special tokens from id 256 + number of merges on.
std::string config_naming(int64_t first_id, const std::vector<std::string>& names);

/// Segments as one line: special tokens as they are named, texts in braces.
std::string shown(const std::vector<Segment>& segments);

/// A conversation's segments as one line, or the error.
std::string rendered(ChatFormat format, const std::vector<ChatMessage>& messages,
                     const ChatOptions& options = {});

/// The demo model's ids of marked-up text.
std::vector<int32_t> demo_ids(const std::vector<Segment>& segments);

}  // namespace waste::engine::test
