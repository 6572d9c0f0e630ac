// What the tests of the C interface share. They reach the engine through waste.h alone.
#pragma once

#include <gtest/gtest.h>
#include <waste.h>

#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

namespace waste::test {

/// Struct with its size set and everything else zero.
template <typename Struct>
Struct sized() {
    Struct out{};
    out.struct_size = sizeof out;
    return out;
}

/// For what a test needs and does not test.
inline void need(waste_status status) {
    if (status != WASTE_OK) throw std::runtime_error(waste_last_error());
}

struct CloseModel {
    void operator()(waste_model* model) const { waste_model_close(model); }
};
struct DestroySession {
    void operator()(waste_session* session) const { waste_session_destroy(session); }
};
using ModelPointer = std::unique_ptr<waste_model, CloseModel>;
using SessionPointer = std::unique_ptr<waste_session, DestroySession>;

/// Small blocks, two threads, and nothing of the user's own is read or changed.
inline waste_model_options small_options() {
    auto options = sized<waste_model_options>();
    options.context_length = 256;
    options.block_tokens = 64;
    options.threads = 2;
    options.no_learn = 1;
    return options;
}

inline ModelPointer open_model(const std::string& path,
                               const waste_model_options& options = small_options()) {
    waste_model* model = nullptr;
    need(waste_model_open(path.c_str(), &options, &model));
    return ModelPointer(model);
}

inline SessionPointer create_session(const waste_model* model) {
    waste_session* session = nullptr;
    need(waste_session_create(model, nullptr, &session));
    return SessionPointer(session);
}

inline std::vector<int32_t> some_ids(size_t count, int32_t start) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < count; i++) ids.push_back((start + 61 * static_cast<int32_t>(i)) % 250);
    return ids;
}

inline void feed(waste_session* session, const std::vector<int32_t>& ids) {
    need(waste_session_feed(session, ids.data(), ids.size(), nullptr, nullptr));
}

inline std::vector<float> logits_of(const waste_session* session) {
    const float* logits = nullptr;
    size_t count = 0;
    need(waste_session_logits(session, &logits, &count));
    return {logits, logits + count};
}

inline std::vector<int32_t> tokens_of(const waste_session* session) {
    const int32_t* ids = nullptr;
    size_t count = 0;
    need(waste_session_tokens(session, &ids, &count));
    return {ids, ids + count};
}

/// Draws `count` tokens; none of them ends it.
inline void generate(waste_session* session, int64_t count, uint64_t seed) {
    auto sampler = sized<waste_sampler>();
    sampler.temperature = 1;
    sampler.seed = seed;
    const int32_t none = 0;
    auto options = sized<waste_generate_options>();
    options.max_tokens = count;
    options.sampler = &sampler;
    options.stop_ids = &none;
    need(waste_session_generate(session, &options, nullptr, nullptr, nullptr));
}

/// The smallest budget that `path` runs with, so that its weights stream.
inline uint64_t least_budget(const std::string& path) {
    auto plan = sized<waste_plan>();
    const auto options = small_options();
    need(waste_plan_path(path.c_str(), &options, &plan));
    return plan.least_bytes;
}

}  // namespace waste::test
