// Generation across the C interface.
#include "engine/generate.h"

#include <vector>

#include "engine/c_api/session.h"

namespace waste::c_api {
namespace {

/// Zero stands for what the engine calls off.
Result<engine::SamplerOptions> sampler_options(const waste_sampler* given) {
    const auto sampler = read_struct(given, "waste_sampler");
    if (!sampler) return pass(sampler);
    engine::SamplerOptions out;
    out.temperature = sampler->temperature;
    out.min_p = sampler->min_p;
    out.top_k = sampler->top_k;
    out.seed = sampler->seed;
    if (sampler->top_p != 0) out.top_p = sampler->top_p;
    if (sampler->repeat_penalty != 0) out.repeat_penalty = sampler->repeat_penalty;
    if (sampler->repeat_window != 0) out.repeat_window = sampler->repeat_window;
    if (const auto valid = engine::validate(out); !valid) {
        return fail(valid.error().kind, "waste_sampler." + valid.error().place, valid.error().message);
    }
    return out;
}

int32_t end_of(engine::StopReason reason) {
    switch (reason) {
        case engine::StopReason::stop_token:
            return WASTE_END_STOP_TOKEN;
        case engine::StopReason::length:
            return WASTE_END_LENGTH;
        case engine::StopReason::context:
            return WASTE_END_CONTEXT;
        case engine::StopReason::interrupted:
            return WASTE_END_CALLBACK;
        case engine::StopReason::stop_string:  // there are none here
        case engine::StopReason::error:
            break;
    }
    return 0;
}

Result<engine::GenerateOptions> generate_options(waste_session& s, const waste_generate_options& given) {
    if (given.max_tokens < 0)
        return fail(ErrorKind::invalid, "waste_generate_options.max_tokens", "is below zero");
    if (given.stop_ids == nullptr && given.stop_count > 0)
        return fail_null("waste_generate_options.stop_ids");
    if (given.sampler != nullptr) {
        const auto sampler = sampler_options(given.sampler);
        if (!sampler) return pass(sampler);
        s.session.set_sampler(*sampler);
    }
    engine::GenerateOptions out;
    out.max_tokens = given.max_tokens;
    if (given.stop_ids != nullptr) {
        out.stop_ids.assign(given.stop_ids, given.stop_ids + given.stop_count);
    } else {
        out.stop_ids = s.open->stop_ids;
    }
    return out;
}

/// Hands a token to the callback; true: go on.
bool hand_over(waste_session& s, int32_t id, waste_on_token on_token, void* user) {
    waste_token token{};
    token.struct_size = sizeof token;
    token.id = id;
    std::string text;
    if (const auto& tokenizer = s.open->tokenizer) {
        token.is_special = tokenizer->is_special(id) ? 1 : 0;
        text = token.is_special != 0 ? s.text.finish() : s.text.push(tokenizer->bytes(id));
    }
    token.text = text.c_str();
    token.text_bytes = text.size();
    return on_token == nullptr || on_token(&token, user) == 0;
}

Result<void> generate(waste_session& s, const waste_generate_options* given, waste_on_token on_token,
                      void* user, waste_generation& out) {
    const auto options = read_struct(given, "waste_generate_options");
    if (!options) return pass(options);
    const auto how = generate_options(s, *options);
    if (!how) return pass(how);
    const auto done = engine::generate(s.session, *how, [&](int32_t id) {
        out.tokens++;
        return hand_over(s, id, on_token, user) ? engine::OnTokenAnswer::keep_going
                                                : engine::OnTokenAnswer::interrupt;
    });
    if (done.error) return tl::unexpected<Error>(*done.error);
    out.end = end_of(done.reason);
    if (done.reason == engine::StopReason::interrupted) return stopped();
    return {};
}

}  // namespace
}  // namespace waste::c_api

extern "C" waste_status waste_session_generate(waste_session* session, const waste_generate_options* options,
                                               waste_on_token on_token, void* user,
                                               waste_generation* generation) {
    using namespace waste::c_api;
    if (generation != nullptr) {
        const waste_status status = guarded([&] { return check_out(generation, "waste_generation"); });
        if (status != WASTE_OK) return status;
    }
    waste_generation out{};
    const waste_status status =
        on_session(session, [&](waste_session& s) { return generate(s, options, on_token, user, out); });
    if (generation != nullptr) write_struct(out, generation);
    return status;
}
