// Sessions as tests use them: what fails throws.
#pragma once

#include <cstring>
#include <span>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine/generate.h"
#include "engine/session.h"

namespace waste::test {

inline std::vector<int32_t> arbitrary_ids(const engine::Model& model, int64_t count, int64_t start = 7) {
    std::vector<int32_t> ids;
    for (int64_t i = 0; i < count; i++) {
        ids.push_back(static_cast<int32_t>((start + 61 * i) % model.config().vocab_size));
    }
    return ids;
}

inline engine::SessionOptions options_for(int64_t context_length, int threads = 2, int checkpoints = 0) {
    engine::SessionOptions options;
    options.context_length = context_length;
    options.threads = threads;
    options.checkpoints = checkpoints;
    return options;
}

inline engine::Session open(const engine::Model& model, const engine::SessionOptions& options) {
    auto session = engine::Session::create(model, options);
    if (!session) throw std::runtime_error(session.error().text());
    return std::move(*session);
}

inline void feed(engine::Session& session, std::span<const int32_t> ids) {
    if (const auto ok = session.feed(ids); !ok) throw std::runtime_error(ok.error().text());
}

inline std::vector<float> logits_of(const engine::Session& session) {
    return {session.logits().begin(), session.logits().end()};
}

inline bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && !a.empty() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

inline engine::SamplerOptions drawing(float temperature, uint64_t seed) {
    engine::SamplerOptions sampler;
    sampler.temperature = temperature;
    sampler.seed = seed;
    return sampler;
}

inline std::vector<int32_t> generate(engine::Session& session, int64_t count) {
    engine::GenerateOptions options;
    options.max_tokens = count;
    const auto out =
        engine::generate(session, options, [](int32_t) { return engine::OnTokenAnswer::keep_going; });
    if (out.error) throw std::runtime_error(out.error->text());
    return out.ids;
}

inline void load(engine::Session& session, const std::string& path) {
    const auto saved = engine::SavedSession::open(path);
    if (!saved) throw std::runtime_error(saved.error().text());
    if (const auto ok = session.load(*saved); !ok) throw std::runtime_error(ok.error().text());
}

inline void save(engine::Session& session, const std::string& path, const engine::SaveOptions& options = {}) {
    if (const auto ok = session.save(path, options); !ok) throw std::runtime_error(ok.error().text());
}

}  // namespace waste::test
