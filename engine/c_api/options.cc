// Options of the C interface, checked, in the engine's words.
#include <fmt/format.h>

#include <algorithm>

#include "engine/c_api/objects.h"

namespace waste::c_api {
namespace {

constexpr int64_t kDefaultContext = 4096;

tl::unexpected<Error> bad_option(const char* name, std::string message) {
    return fail(ErrorKind::invalid, fmt::format("waste_model_options.{}", name), std::move(message));
}

Result<kernels::Tier> choose_tier(const char* name) {
    if (name == nullptr) return kernels::best_tier();
    const auto tier = kernels::tier_from_name(name);
    if (!tier) {
        return bad_option("tier",
                          fmt::format("'{}' is none; use scalar, avx2, avxvnni, avx512, neon or i8mm", name));
    }
    if (!kernels::tier_supported(*tier)) {
        return fail(ErrorKind::unsupported, "waste_model_options.tier",
                    fmt::format("this CPU cannot run '{}'", name));
    }
    return *tier;
}

Result<container::DriveReaderOptions> choose_reading(int32_t io) {
    container::DriveReaderOptions reader;
    switch (io) {
        case WASTE_IO_AUTO:
            break;
        case WASTE_IO_URING:
            reader.method = container::ReadMethod::io_uring;
            break;
        case WASTE_IO_THREADS:
            reader.method = container::ReadMethod::threads;
            break;
        case WASTE_IO_BUFFERED:
            reader.direct = false;
            break;
        default:
            return bad_option("io", fmt::format("{} is none of WASTE_IO_...", io));
    }
    return reader;
}

}  // namespace

Result<OpenOptions> open_options(const waste_model_options* given) {
    const auto options = read_struct(given, "waste_model_options");
    if (!options) return pass(options);
    const auto tier = choose_tier(options->tier);
    if (!tier) return pass(tier);
    const auto reader = choose_reading(options->io);
    if (!reader) return pass(reader);
    if (options->compute != WASTE_COMPUTE_INT8 && options->compute != WASTE_COMPUTE_F32) {
        return bad_option("compute", fmt::format("{} is none of WASTE_COMPUTE_...", options->compute));
    }
    constexpr int32_t kMostThreads = 1024;
    if (options->threads < 0 || options->threads > kMostThreads) {
        return bad_option("threads", fmt::format("{} does not lie in 0..{}", options->threads, kMostThreads));
    }
    if (options->cpus != nullptr && options->threads != 0) {
        return bad_option("cpus", "says how many threads there are; set threads to 0");
    }
    const auto on_grid = [](int64_t tokens) { return tokens >= 0 && tokens % kernels::kKdaChunk == 0; };
    if (!on_grid(options->block_tokens) || options->block_tokens > engine::kMostBlockTokens) {
        return bad_option("block_tokens",
                          fmt::format("{} is no multiple of {} up to {}", options->block_tokens,
                                      kernels::kKdaChunk, engine::kMostBlockTokens));
    }
    if (options->checkpoints < 0 || options->checkpoints > engine::kMostCheckpoints) {
        return bad_option("checkpoints", fmt::format("{} does not lie in 0..{}", options->checkpoints,
                                                     engine::kMostCheckpoints));
    }
    if (!on_grid(options->checkpoint_interval)) {
        return bad_option(
            "checkpoint_interval",
            fmt::format("{} is no multiple of {}", options->checkpoint_interval, kernels::kKdaChunk));
    }
    if (options->context_length < 0) return bad_option("context_length", "is below zero");
    const auto placement = options->cpus == nullptr
                               ? Result<engine::Placement>(engine::choose_placement(options->threads))
                               : engine::placement_on(options->cpus, "waste_model_options.cpus");
    if (!placement) return pass(placement);

    OpenOptions out;
    out.session.context_length = options->context_length;
    if (options->block_tokens != 0) out.session.block_tokens = options->block_tokens;
    out.session.compute =
        options->compute == WASTE_COMPUTE_F32 ? engine::Compute::f32 : engine::Compute::int8;
    out.session.tier = *tier;
    out.session.threads = placement->threads;
    out.session.binding = placement->binding;
    out.session.look_ahead = options->no_look_ahead == 0;
    out.session.checkpoints = options->checkpoints;
    if (options->checkpoint_interval != 0) out.session.checkpoint_interval = options->checkpoint_interval;
    if (options->budget_bytes != 0) out.fit.budget_bytes = options->budget_bytes;
    out.fit.verify = options->no_verify == 0;
    out.fit.copy_trunk = options->copy_trunk != 0;
    out.fit.lock = options->lock_trunk != 0;
    out.fit.reader = *reader;
    for (const char* const* mirror = options->mirrors; mirror != nullptr && *mirror != nullptr; mirror++) {
        out.fit.mirrors.emplace_back(*mirror);
    }
    out.learn = options->no_learn == 0;
    out.chosen_cpus = options->cpus != nullptr;
    return out;
}

Result<void> choose_context(const engine::ModelConfig& config, engine::SessionOptions& options) {
    if (options.context_length == 0) options.context_length = std::min(kDefaultContext, config.max_context);
    if (options.context_length <= config.max_context) return {};
    return bad_option("context_length", fmt::format("the model's context has {} positions, not {}",
                                                    config.max_context, options.context_length));
}

}  // namespace waste::c_api
