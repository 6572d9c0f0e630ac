#include "tools/model_options.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "engine/model_text.h"
#include "kernels/tier.h"

namespace waste::tools {
namespace {

constexpr uint64_t kMaxTextBytes = uint64_t{1} << 30;

/// To the end, pipes and devices included.
Result<std::string> read_all(FILE* file, const std::string& place) {
    std::string text;
    char buffer[1 << 16];
    for (size_t n = fread(buffer, 1, sizeof buffer, file); n > 0; n = fread(buffer, 1, sizeof buffer, file)) {
        text.append(buffer, n);
        if (text.size() > kMaxTextBytes) return fail(ErrorKind::invalid, place, "is longer than 1 GiB");
    }
    if (ferror(file))
        return fail(ErrorKind::io, place, fmt::format("cannot be read: {}", std::strerror(errno)));
    return text;
}

Result<kernels::Tier> choose_tier(const std::string& option) {
    const char* variable = std::getenv("WASTE_TIER");
    const std::string name = !option.empty() ? option : variable ? variable : "";
    if (name.empty()) return kernels::best_tier();
    const char* place = !option.empty() ? "--tier" : "WASTE_TIER";
    const auto tier = kernels::tier_from_name(name);
    if (!tier) {
        return fail(ErrorKind::invalid, place,
                    fmt::format("'{}' is not a tier; use scalar, avx2, avxvnni, avx512, neon or i8mm", name));
    }
    if (!kernels::tier_supported(*tier)) {
        return fail(ErrorKind::unsupported, place,
                    fmt::format("this CPU cannot run '{}'; the best it can is '{}'", name,
                                kernels::tier_name(kernels::best_tier())));
    }
    return *tier;
}

}  // namespace

void add_model_options(CLI::App& command, ModelArguments& arguments) {
    command.add_option("model", arguments.model, "Container made by `waste convert`")
        ->required()
        ->type_name("MODEL");
    command
        .add_option("--compute", arguments.compute,
                    "int8: activations in 8 bits where weights are quantized; f32: exact, slower")
        ->check(CLI::IsMember({"int8", "f32"}))
        ->capture_default_str();
    command.add_option("--tier", arguments.tier,
                       "Instruction set: scalar, avx2, avxvnni, avx512, neon, i8mm (default: the fastest)");
    command
        .add_option(
            "--cpus", arguments.cpus,
            "Bind one compute thread to each of these, like 0-3,8 (default: chosen from the machine's cores)")
        ->excludes(add_threads_option(command, arguments.threads))
        ->type_name("LIST");
    add_block_option(command, arguments.block_tokens);
    command
        .add_option("-c,--ctx", arguments.context_length,
                    "Most tokens of prompt and reply (default: 4096, or the prompt and 4096)")
        ->check(CLI::Range(int64_t{1}, int64_t{1} << 32));
    add_memory_options(command, arguments.memory);
}

CLI::Option* add_threads_option(CLI::App& command, int& threads) {
    return command
        .add_option("-t,--threads", threads,
                    "Compute threads; results do not depend on it (default: one a fast physical core)")
        ->check(CLI::Range(1, 1024));
}

void add_block_option(CLI::App& command, int64_t& block_tokens) {
    const auto legal = [](const std::string& text) {
        int64_t value = 0;
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool good = error == std::errc() && end == text.data() + text.size() &&
                          value >= kernels::kKdaChunk && value <= engine::kMostBlockTokens &&
                          value % kernels::kKdaChunk == 0;
        return good ? std::string()
                    : fmt::format("must be a multiple of {} from {} to {}", kernels::kKdaChunk,
                                  kernels::kKdaChunk, engine::kMostBlockTokens);
    };
    command
        .add_option("--block", block_tokens,
                    "Prompt tokens computed together: more read the weights less often and take more memory")
        ->check(legal)
        ->capture_default_str();
}

void add_prompt_options(CLI::App& command, PromptArguments& arguments) {
    auto* text = command.add_option("prompt", arguments.text,
                                    "The prompt; - or nothing: stdin, without its last line end");
    text->type_name("PROMPT");
    auto* file =
        command.add_option("-f,--file", arguments.file, "Read the prompt from a file, as it is; - is stdin");
    auto* ids = command.add_option("--ids", arguments.ids,
                                   "Read token ids, separated by commas or blanks; - is stdin");
    file->type_name("FILE")->excludes(text)->excludes(ids);
    ids->type_name("FILE")->excludes(text);
}

Result<std::string> prompt_text(const PromptArguments& arguments) {
    if (!arguments.file.empty()) return read_text(arguments.file);
    if (arguments.text && *arguments.text != "-") return *arguments.text;
    if (!arguments.text && isatty(STDIN_FILENO) == 1) {
        return fail(ErrorKind::invalid, "prompt",
                    "none was given; give it as an argument, with --file, with --ids, or on stdin");
    }
    auto text = read_text("-");
    if (text && text->ends_with('\n')) text->pop_back();
    return text;
}

std::string prompt_place(const PromptArguments& arguments) {
    if (!arguments.file.empty() && arguments.file != "-") return arguments.file;
    return arguments.text && *arguments.text != "-" ? "prompt" : "stdin";
}

Result<engine::SessionOptions> session_options(const ModelArguments& arguments, int64_t context_length) {
    const auto tier = choose_tier(arguments.tier);
    if (!tier) return pass(tier);
    engine::SessionOptions options;
    options.context_length = arguments.context_length > 0 ? arguments.context_length : context_length;
    options.compute = arguments.compute == "f32" ? engine::Compute::f32 : engine::Compute::int8;
    options.tier = *tier;
    const auto placement = arguments.cpus.empty()
                               ? Result<engine::Placement>(engine::choose_placement(arguments.threads))
                               : engine::placement_on(arguments.cpus, "--cpus");
    if (!placement) return pass(placement);
    options.threads = placement->threads;
    options.binding = placement->binding;
    options.block_tokens = arguments.block_tokens;
    return options;
}

Result<engine::Tokenizer> require_tokenizer(const container::Container& container, int64_t vocab_size) {
    auto tokenizer = engine::open_tokenizer(container, vocab_size);
    if (!tokenizer) return pass(tokenizer);
    if (!*tokenizer) {
        return fail(
            ErrorKind::not_found, container.directory(),
            "the model came without tiktoken.model, so text has no meaning to it; give token ids with --ids");
    }
    return std::move(**tokenizer);
}

Result<std::vector<int32_t>> parse_ids(std::string_view text, const std::string& place) {
    std::vector<int32_t> ids;
    const char* p = text.data();
    const char* end = p + text.size();
    while (true) {
        while (p < end && (*p == ',' || *p == ' ' || *p == '\n' || *p == '\t' || *p == '\r')) p++;
        if (p == end) return ids;
        int32_t id = 0;
        const auto [after, error] = std::from_chars(p, end, id);
        if (error != std::errc() || id < 0) {
            return fail(
                ErrorKind::invalid, place,
                fmt::format("byte {} does not start a token id; expected integers separated by commas",
                            p - text.data()));
        }
        ids.push_back(id);
        p = after;
    }
}

Result<std::vector<int32_t>> read_ids(const std::string& path) {
    const auto text = read_text(path);
    return text ? parse_ids(*text, path) : pass(text);
}

Result<std::string> read_text(const std::string& path) {
    if (path == "-") return read_all(stdin, "stdin");
    const std::unique_ptr<FILE, int (*)(FILE*)> file(fopen(path.c_str(), "rb"), fclose);
    if (!file)
        return fail(ErrorKind::not_found, path, fmt::format("cannot be opened: {}", std::strerror(errno)));
    return read_all(file.get(), path);
}

}  // namespace waste::tools
