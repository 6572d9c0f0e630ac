// What a run says at its end: on stderr for people, on stdout as JSON.
#pragma once

#include <cstdint>
#include <optional>

#include "engine/generate.h"
#include "engine/model.h"
#include "engine/profile.h"
#include "tools/reply_output.h"

namespace waste::tools {

struct RunStatistics {
    size_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;
    double prompt_seconds = 0, decode_seconds = 0;
    std::optional<uint64_t> drive_bytes;
    engine::StreamCounters prompt_stream, decode_stream;

    static double rate(size_t tokens, double seconds) {
        return seconds > 0 ? static_cast<double>(tokens) / seconds : 0;
    }
    double prompt_rate() const { return rate(prompt_tokens, prompt_seconds); }
    double decode_rate() const { return rate(generated_tokens, decode_seconds); }
};

void print_statistics(const RunStatistics& s, engine::StopReason reason, bool cut_in_reasoning);
/// What the drive did, in sum and where asked for by layer; nothing where nothing streams.
void print_stream(const engine::Model& model, const RunStatistics& s, bool by_layer);
void print_profile(const char* what, const engine::Profile& profile, size_t tokens);
void print_json(const engine::Model& model, const ReplyOutput& output, const engine::Generation& generation,
                const RunStatistics& s, uint64_t seed);

}  // namespace waste::tools
