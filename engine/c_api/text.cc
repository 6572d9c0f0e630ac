// Text and token ids across the C interface.
#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string_view>
#include <vector>

#include "engine/c_api/objects.h"
#include "engine/text/chat.h"

namespace waste::c_api {
namespace {

Result<const engine::Tokenizer*> tokenizer_of(const waste_model* model) {
    if (model == nullptr) return fail_null("model");
    if (model->open->tokenizer) return &*model->open->tokenizer;
    return fail(ErrorKind::not_found, model->open->model.container().directory(),
                "the model came without a tokenizer; only token ids have a meaning to it");
}

/// What is found goes into the caller's room, or only its count where that is too small.
template <typename Item>
Result<void> hand_out(std::span<const Item> found, Item* room, size_t capacity, size_t* count) {
    *count = found.size();
    if (found.size() > capacity) {
        return fail(ErrorKind::capacity, "capacity",
                    fmt::format("{} is too little for {}", capacity, found.size()));
    }
    std::copy(found.begin(), found.end(), room);
    return {};
}

Result<void> check_room(const void* room, size_t capacity, const size_t* count) {
    if (count == nullptr) return fail_null("count");
    if (room == nullptr && capacity > 0) return fail_null("the room for the result");
    return {};
}

Result<void> tokenize(const waste_model* model, std::string_view text, int32_t* ids, size_t capacity,
                      size_t* count) {
    const auto tokenizer = tokenizer_of(model);
    if (!tokenizer) return pass(tokenizer);
    if (const auto good = check_room(ids, capacity, count); !good) return good;
    if (text.data() == nullptr && !text.empty()) return fail_null("text");
    const auto found = (*tokenizer)->encode(text);
    if (!found) return pass(found);
    return hand_out<int32_t>(*found, ids, capacity, count);
}

Result<void> special_token(const waste_model* model, const char* name, int32_t* id) {
    const auto tokenizer = tokenizer_of(model);
    if (!tokenizer) return pass(tokenizer);
    if (name == nullptr) return fail_null("name");
    if (id == nullptr) return fail_null("id");
    const auto found = (*tokenizer)->special(name);
    if (!found) return fail(ErrorKind::not_found, name, "is no special token of this model");
    *id = *found;
    return {};
}

Result<void> detokenize(const waste_model* model, std::span<const int32_t> ids, bool keep_special, char* text,
                        size_t capacity, size_t* text_bytes) {
    const auto tokenizer = tokenizer_of(model);
    if (!tokenizer) return pass(tokenizer);
    if (const auto good = check_room(text, capacity, text_bytes); !good) return good;
    if (ids.data() == nullptr && !ids.empty()) return fail_null("ids");
    const int64_t vocab_size = model->open->model.config().vocab_size;
    for (size_t i = 0; i < ids.size(); i++) {
        if (ids[i] >= 0 && ids[i] < vocab_size) continue;
        return fail(ErrorKind::invalid, fmt::format("ids[{}]", i),
                    fmt::format("{} is outside the vocabulary of {}", ids[i], vocab_size));
    }
    const std::string found = (*tokenizer)->decode(ids, keep_special);
    return hand_out<char>(found, text, capacity, text_bytes);
}

/// The messages of an array whose elements are as large as the first one says.
Result<std::vector<engine::ChatMessage>> read_messages(const waste_message* messages, size_t count) {
    if (messages == nullptr || count == 0) return fail(ErrorKind::invalid, "messages", "there are none");
    const size_t stride = messages->struct_size;
    const auto* at = reinterpret_cast<const std::byte*>(messages);
    std::vector<engine::ChatMessage> out;
    for (size_t i = 0; i < count; i++, at += stride) {
        const auto* given = reinterpret_cast<const waste_message*>(at);
        const std::string place = fmt::format("messages[{}]", i);
        if (given->struct_size != stride)
            return fail(ErrorKind::invalid, place, "its struct_size is not that of the first");
        const auto message = read_struct(given, "waste_message");
        if (!message) return pass(message);
        if (message->role == nullptr) return fail_null((place + ".role").c_str());
        if (message->content == nullptr && message->content_bytes > 0)
            return fail_null((place + ".content").c_str());
        engine::ChatMessage read;
        read.role = message->role;
        if (message->content_bytes > 0) read.content.assign(message->content, message->content_bytes);
        out.push_back(std::move(read));
    }
    return out;
}

Result<void> tokenize_chat(const waste_model* model, const waste_message* messages, size_t message_count,
                           bool thinking, int32_t* ids, size_t capacity, size_t* count) {
    const auto tokenizer = tokenizer_of(model);
    if (!tokenizer) return pass(tokenizer);
    if (const auto good = check_room(ids, capacity, count); !good) return good;
    const auto read = read_messages(messages, message_count);
    if (!read) return pass(read);
    const auto format = engine::detect_chat_format(**tokenizer);
    if (!format) return pass(format);
    engine::ChatOptions options;
    options.thinking = thinking;
    const auto segments = engine::render_chat(*format, *read, options);
    if (!segments) return pass(segments);
    const auto found = (*tokenizer)->encode_segments(*segments);
    if (!found) return pass(found);
    return hand_out<int32_t>(*found, ids, capacity, count);
}

}  // namespace
}  // namespace waste::c_api

extern "C" {

waste_status waste_tokenize(const waste_model* model, const char* text, size_t text_bytes, int32_t* ids,
                            size_t capacity, size_t* count) {
    using namespace waste::c_api;
    return guarded([&] { return tokenize(model, {text, text_bytes}, ids, capacity, count); });
}

waste_status waste_special_token(const waste_model* model, const char* name, int32_t* id) {
    using namespace waste::c_api;
    return guarded([&] { return special_token(model, name, id); });
}

waste_status waste_detokenize(const waste_model* model, const int32_t* ids, size_t count,
                              int32_t keep_special, char* text, size_t capacity, size_t* text_bytes) {
    using namespace waste::c_api;
    return guarded([&] {
        return detokenize(model, {ids, count}, keep_special != 0, text, capacity, text_bytes);
    });
}

waste_status waste_tokenize_chat(const waste_model* model, const waste_message* messages,
                                 size_t message_count, int32_t thinking, int32_t* ids, size_t capacity,
                                 size_t* count) {
    using namespace waste::c_api;
    return guarded(
        [&] { return tokenize_chat(model, messages, message_count, thinking != 0, ids, capacity, count); });
}

}  // extern "C"
