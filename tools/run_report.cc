#include "tools/run_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tools/profile_table.h"
#include "tools/stream_report.h"
#include "tools/terminal.h"

namespace waste::tools {

void print_statistics(const RunStatistics& s, engine::StopReason reason, bool cut_in_reasoning) {
    std::string line = fmt::format(
        "prompt {} tokens, {:.1f} tok/s; generated {} tokens, {:.1f} tok/s; ended by {}", s.prompt_tokens,
        s.prompt_rate(), s.generated_tokens, s.decode_rate(), engine::stop_reason_name(reason));
    if (s.reused_tokens > 0)
        line += fmt::format("; {} tokens before them did not have to be read", s.reused_tokens);
    if (s.drive_bytes) line += fmt::format("; {} read from the drive", bytes_text(*s.drive_bytes));
    if (cut_in_reasoning) line += "; the reply was cut in its reasoning";
    put_err(fmt::format("\n{}\n", line));
}

void print_stream(const engine::Model& model, const RunStatistics& s, bool by_layer) {
    const auto prompt_tokens = static_cast<int64_t>(s.prompt_tokens);
    const auto generated_tokens = static_cast<int64_t>(s.generated_tokens);
    const std::string reading = stream_text(model, s.prompt_stream, prompt_tokens, s.prompt_seconds);
    if (!reading.empty()) put_err("prompt:\n" + reading);
    const std::string generating = stream_text(model, s.decode_stream, generated_tokens, s.decode_seconds);
    if (!generating.empty()) put_err("generation:\n" + generating);
    if (by_layer) put_err(layers_text(model, prompt_tokens + generated_tokens));
}

void print_json(const engine::Model& model, const ReplyOutput& output, const engine::Generation& generation,
                const RunStatistics& s, uint64_t seed) {
    nlohmann::ordered_json json;
    json["text"] = output.text();
    if (!output.reasoning().empty()) json["reasoning"] = output.reasoning();
    json["ids"] = generation.ids;
    json["stop_reason"] = engine::stop_reason_name(generation.reason);
    if (generation.error) json["error"] = generation.error->text();
    json["seed"] = seed;
    json["prompt_tokens"] = s.prompt_tokens;
    json["reused_tokens"] = s.reused_tokens;
    json["prompt_tokens_per_second"] = s.prompt_rate();
    json["generated_tokens"] = s.generated_tokens;
    json["generated_tokens_per_second"] = s.decode_rate();
    if (s.drive_bytes) json["drive_bytes_read"] = *s.drive_bytes;
    if (model.experts().streams() || model.trunk().streams()) {
        json["prompt_stream"] =
            stream_json(model, s.prompt_stream, static_cast<int64_t>(s.prompt_tokens), s.prompt_seconds);
        json["generation_stream"] =
            stream_json(model, s.decode_stream, static_cast<int64_t>(s.generated_tokens), s.decode_seconds);
    }
    put_out(fmt::format("{}\n", json.dump(2, ' ', false, nlohmann::json::error_handler_t::replace)));
}

void print_profile(const char* what, const engine::Profile& profile, size_t tokens) {
    put_err(fmt::format("{}:\n{}", what, profile_table(profile, static_cast<int64_t>(tokens))));
}

}  // namespace waste::tools
