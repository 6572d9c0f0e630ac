#include "engine/convert/job.h"

#include "container/checksum.h"
#include "engine/text/tokenizer.h"

namespace waste::engine {
namespace {

/// Tokenizer files that would be refused at run time are refused now. Returns what was tolerated in them.
Result<std::vector<std::string>> check_tokenizer(const Source& source,
                                                 const std::vector<CarriedContent>& carried) {
    const CarriedContent* ranks = find_carried(carried, "tiktoken.model");
    const CarriedContent* specials = find_carried(carried, "tokenizer_config.json");
    if (!ranks) return std::vector<std::string>();
    const auto tokenizer = Tokenizer::create(ranks->content, specials ? specials->content : "{}",
                                             source.config().vocab_size, source.directory());
    if (!tokenizer) return pass(tokenizer);
    return tokenizer->warnings();
}

}  // namespace

std::string ConvertJob::identity() const {
    container::Hasher hasher;
    hasher.update_u64(container::kFormatVersion);
    hasher.update(source.config_text());
    hasher.update_u64(source.checkpoint().identity());
    hasher.update(trunk_recipe);
    hasher.update(expert_recipe);
    for (const CarriedContent& file : carried) hasher.update_u64(container::xxh3_64(file.content));
    return hasher.digest_128_hex();
}

Result<ConvertJob> prepare_job(const ConvertOptions& options) {
    auto source = Source::open(options.source);
    if (!source) return pass(source);
    auto carried = read_carried_files(options.source);
    if (!carried) return pass(carried);
    auto notes = check_tokenizer(*source, *carried);
    if (!notes) return pass(notes);
    const auto expert_format = choose_expert_format(options, *source);
    if (!expert_format) return pass(expert_format);
    const auto released = [&](size_t i) {
        return source->checkpoint().tensor(source->trunk_source(i)).dtype;
    };
    auto layout = plan_layout(source->config(), source->trunk(), options.trunk, *expert_format, released);
    if (!layout) return pass(layout);
    return ConvertJob{std::move(*source),
                      std::string(trunk_recipe_name(options.trunk)),
                      std::string(kernels::format_info(*expert_format).name),
                      *expert_format,
                      std::move(*layout),
                      std::move(*carried),
                      std::move(*notes)};
}

}  // namespace waste::engine
