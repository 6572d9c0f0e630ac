// Any rank file, any config, any text: create() refuses or the tokenizer works. Input: two lengths of two
// bytes (big endian), the rank file, the config, and the text as the rest. Half of the inputs (by the
// first bit of the text's first byte) get all single bytes in front of the rank file, or the fuzzer would
// rarely reach the encoder.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>

#include "engine/text/chat.h"
#include "engine/text/tokenizer.h"
#include "engine/text/utf8.h"

namespace {

using namespace waste::engine;

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
constexpr int64_t kVocabSize = 1024;

std::string_view take(std::string_view& input, size_t length) {
    const std::string_view taken = input.substr(0, length);
    input.remove_prefix(taken.size());
    return taken;
}

size_t take_length(std::string_view& input) {
    size_t length = 0;
    for (const char byte : take(input, 2)) length = length << 8 | static_cast<uint8_t>(byte);
    return length;
}

/// Lines for ranks 0 to 255: the base64 of one byte has two digits, the second of which holds its last two
/// bits.
std::string single_bytes() {
    std::string file;
    for (size_t byte = 0; byte < 256; ++byte) {
        file += kDigits[byte >> 2];
        file += kDigits[(byte & 3) << 4];
        file += "== " + std::to_string(byte) + "\n";
    }
    return file;
}

void require(bool holds) {
    if (!holds) std::abort();
}

void check_text(const Tokenizer& tokenizer, std::string_view text) {
    const auto ids = tokenizer.encode(text);
    require(ids.has_value() == !first_invalid_utf8(text).has_value());
    if (!ids) return;
    for (const int32_t id : *ids) require(!tokenizer.is_special(id) && tokenizer.has_token(id));
    require(tokenizer.decode(*ids, true) == text);

    const ChatMessage message = {"user", std::string(text), "", std::string(text)};
    const auto format = detect_chat_format(tokenizer);
    const auto segments = render_chat(format.value_or(ChatFormat::xtml), {&message, 1}, {});
    require(segments.has_value());
    require(tokenizer.encode_segments(*segments).has_value() == format.has_value());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::string_view input(reinterpret_cast<const char*>(data), size);
    const size_t rank_bytes = take_length(input);
    const size_t config_bytes = take_length(input);
    const std::string_view ranks = take(input, rank_bytes);
    const std::string_view config = take(input, config_bytes);
    static const std::string all_bytes = single_bytes();
    const bool complete = !input.empty() && (input.front() & 1) != 0;

    const auto tokenizer = Tokenizer::create(complete ? all_bytes + std::string(ranks) : std::string(ranks),
                                             config, kVocabSize, "input");
    if (tokenizer) check_text(*tokenizer, input);
    return 0;
}
