#include "text_test_data.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <nlohmann/json.hpp>

namespace waste::engine::test {

namespace {

constexpr std::string_view kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string read_demo_file(std::string_view name) {
    std::ifstream file(fmt::format("{}/demo-model/{}", WASTE_TEST_DATA, name), std::ios::binary);
    EXPECT_TRUE(file.is_open()) << name;
    return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

const Tokenizer& demo_tokenizer() {
    static const auto tokenizer =
        Tokenizer::create(read_demo_file("tiktoken.model"), read_demo_file("tokenizer_config.json"),
                          kDemoVocabSize, "demo-model");
    EXPECT_TRUE(tokenizer.has_value()) << tokenizer.error().text();
    return *tokenizer;
}

std::string encode_base64(std::string_view bytes) {
    std::string text;
    for (size_t at = 0; at < bytes.size(); at += 3) {
        const std::string_view group = bytes.substr(at, 3);
        uint32_t bits = 0;
        for (size_t i = 0; i < 3; ++i)
            bits = bits << 8 | (i < group.size() ? static_cast<uint8_t>(group[i]) : 0u);
        for (size_t i = 0; i < 4; ++i) {
            text += i <= group.size() ? kDigits[bits >> (18 - 6 * i) & 0x3F] : '=';
        }
    }
    return text;
}

std::string rank_file(const std::vector<std::string>& merges) {
    std::string file;
    for (int byte = 0; byte < 256; ++byte) {
        const char character = static_cast<char>(byte);
        file += fmt::format("{} {}\n", encode_base64({&character, 1}), byte);
    }
    for (size_t i = 0; i < merges.size(); ++i)
        file += fmt::format("{} {}\n", encode_base64(merges[i]), 256 + i);
    return file;
}

std::string config_naming(int64_t first_id, const std::vector<std::string>& names) {
    nlohmann::json added = nlohmann::json::object();
    for (size_t i = 0; i < names.size(); ++i) {
        added[std::to_string(first_id + static_cast<int64_t>(i))] = {{"content", names[i]},
                                                                     {"special", true}};
    }
    return nlohmann::json{{"added_tokens_decoder", added}}.dump();
}

std::string shown(const std::vector<Segment>& segments) {
    std::string line;
    for (const Segment& segment : segments) {
        line += segment.special ? segment.text : fmt::format("{{{}}}", segment.text);
    }
    return line;
}

std::string rendered(ChatFormat format, const std::vector<ChatMessage>& messages,
                     const ChatOptions& options) {
    const auto segments = render_chat(format, messages, options);
    return segments ? shown(*segments) : segments.error().text();
}

std::vector<int32_t> demo_ids(const std::vector<Segment>& segments) {
    const auto ids = demo_tokenizer().encode_segments(segments);
    EXPECT_TRUE(ids) << ids.error().text();
    return ids.value_or(std::vector<int32_t>());
}

}  // namespace waste::engine::test
