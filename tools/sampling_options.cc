#include "tools/sampling_options.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <random>
#include <vector>

namespace waste::tools {
namespace {

using engine::SamplerOptions;

struct RealOption {
    const char* name;
    float SamplerOptions::*member;
    const char* help;
};

constexpr RealOption kReals[] = {
    {"temp", &SamplerOptions::temperature, "Temperature; 0 always takes the likeliest token"},
    {"top-p", &SamplerOptions::top_p, "Sample among the likeliest that hold this share; 1: all"},
    {"min-p", &SamplerOptions::min_p, "Drop tokens under this share of the likeliest one; 0: none"},
    {"repeat-penalty", &SamplerOptions::repeat_penalty, "Make tokens of the last 64 less likely; 1: off"},
};

constexpr const char* kTopK = "top-k";

template <typename Number>
bool parse_whole(std::string_view text, Number& number) {
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    return error == std::errc() && end == text.data() + text.size();
}

/// The library's name of an option in the command line's spelling.
Error as_option(Error error, std::string_view dashes) {
    if (error.place == "temperature") error.place = "temp";
    std::replace(error.place.begin(), error.place.end(), '_', '-');
    error.place = fmt::format("{}{}", dashes, error.place);
    return error;
}

}  // namespace

void add_sampling_options(CLI::App& command, SamplerOptions& sampler, std::optional<uint64_t>& seed) {
    sampler.top_p = 0.95f;  // as K3's own service has it
    const char* group = "Sampling";
    for (const RealOption& option : kReals) {
        command.add_option(fmt::format("--{}", option.name), sampler.*option.member, option.help)
            ->capture_default_str()
            ->group(group);
    }
    command
        .add_option(fmt::format("--{}", kTopK), sampler.top_k, "Sample among the k likeliest only; 0: all")
        ->capture_default_str()
        ->group(group);
    command.add_option("--seed", seed, "Same seed, same text (default: a random one)")->group(group);
}

Result<void> check_sampling(SamplerOptions& sampler, std::optional<uint64_t>& seed) {
    if (!seed) seed = std::random_device{}();
    sampler.seed = *seed;
    const auto ok = engine::validate(sampler);
    return ok ? ok : Result<void>(tl::unexpected(as_option(ok.error(), "--")));
}

void take_given_sampling(const CLI::App& command, const SamplerOptions& given, SamplerOptions& sampler) {
    const auto is_given = [&](const char* name) { return command.count(fmt::format("--{}", name)) > 0; };
    for (const RealOption& option : kReals) {
        if (is_given(option.name)) sampler.*option.member = given.*option.member;
    }
    if (is_given(kTopK)) sampler.top_k = given.top_k;
}

Result<void> set_sampling(SamplerOptions& sampler, std::string_view name, const std::string& value) {
    SamplerOptions changed = sampler;
    bool parsed = false, known = false;
    for (const RealOption& option : kReals) {
        if (name != option.name) continue;
        known = true;
        parsed = parse_whole(value, changed.*option.member);
    }
    if (name == kTopK) {
        known = true;
        parsed = parse_whole(value, changed.top_k);
    } else if (name == "seed") {
        known = true;
        parsed = parse_whole(value, changed.seed);
    }
    if (!known) {
        std::vector<std::string_view> names;
        for (const RealOption& option : kReals) names.emplace_back(option.name);
        return fail(ErrorKind::invalid, std::string(name),
                    fmt::format("cannot be set; what can: {}, {}, seed", fmt::join(names, ", "), kTopK));
    }
    if (!parsed)
        return fail(ErrorKind::invalid, std::string(name), fmt::format("'{}' is not a number", value));
    if (const auto ok = engine::validate(changed); !ok) return tl::unexpected(as_option(ok.error(), ""));
    sampler = changed;
    return {};
}

std::string sampling_text(const SamplerOptions& sampler) {
    std::string text;
    for (const RealOption& option : kReals) {
        text += fmt::format("{} {:g}, ", option.name, sampler.*option.member);
    }
    return text + fmt::format("{} {}, seed {}", kTopK, sampler.top_k, sampler.seed);
}

}  // namespace waste::tools
