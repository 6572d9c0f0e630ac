#include "engine/model_text.h"

#include "container/file.h"
#include "engine/text/stop_ids.h"

namespace waste::engine {
namespace {

/// A carried file's content, `fallback` where there is none.
Result<std::string> carried_or(const container::Container& container, std::string_view name,
                               const char* fallback) {
    auto content = container.carried_file(name);
    if (!content && content.error().kind == ErrorKind::not_found) return fallback;
    return content;
}

}  // namespace

Result<std::optional<Tokenizer>> open_tokenizer(const container::Container& container, int64_t vocab_size) {
    const auto ranks = carried_or(container, "tiktoken.model", "");
    if (!ranks) return pass(ranks);
    if (ranks->empty()) return std::optional<Tokenizer>();
    const auto specials = carried_or(container, "tokenizer_config.json", "{}");
    if (!specials) return pass(specials);
    auto tokenizer = Tokenizer::create(*ranks, *specials, vocab_size, container.directory());
    if (!tokenizer) return pass(tokenizer);
    return std::optional(std::move(*tokenizer));
}

Result<std::vector<int32_t>> find_stop_ids(const Model& model, const Tokenizer* tokenizer) {
    const std::string name = "generation_config.json";
    const auto generation = carried_or(model.container(), name, "");
    if (!generation) return pass(generation);
    const auto& config = model.config();
    const std::vector<int64_t> eos(config.eos_token_ids.begin(), config.eos_token_ids.end());
    return stop_ids(tokenizer, *generation, eos, config.vocab_size,
                    container::join_path(model.container().directory(), name));
}

}  // namespace waste::engine
