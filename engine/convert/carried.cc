#include "engine/convert/carried.h"

#include "container/checksum.h"
#include "container/file.h"

namespace waste::engine {
namespace {

constexpr uint64_t kMaxCarriedBytes = 64 << 20;

// In name order, which is also the manifest's.
constexpr std::string_view kCarriedNames[] = {
    "LICENSE",
    "LICENSE.md",
    "LICENSE.txt",
    "chat_template.jinja",
    "generation_config.json",
    "preprocessor_config.json",
    "special_tokens_map.json",
    "tiktoken.model",
    "tokenizer_config.json",
};

}  // namespace

Result<std::vector<CarriedContent>> read_carried_files(const std::string& directory) {
    std::vector<CarriedContent> out;
    for (const std::string_view name : kCarriedNames) {
        const std::string path = container::join_path(directory, name);
        if (!container::is_file(path)) continue;
        auto content = container::read_text_file(path, kMaxCarriedBytes);
        if (!content) return pass(content);
        out.push_back({std::string(name), std::move(*content)});
    }
    return out;
}

container::CarriedFile describe(const CarriedContent& file) {
    return {file.name, file.content.size(), container::xxh3_64(file.content)};
}

const CarriedContent* find_carried(const std::vector<CarriedContent>& files, std::string_view name) {
    for (const CarriedContent& file : files) {
        if (file.name == name) return &file;
    }
    return nullptr;
}

}  // namespace waste::engine
