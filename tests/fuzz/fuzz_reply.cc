// Any stream of tokens as a reply and as a transcript, in both formats. Input: a token a byte. Below 192 it is that byte
// of text; from there on whole words of the markup, then the markers, then ids that mean nothing.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <vector>

#include "engine/text/reply.h"
#include "engine/text/transcript.h"
#include "engine/text/utf8.h"

using namespace waste::engine;

namespace {

constexpr int32_t kSpecial = 256 + 12;

std::string base64_of(unsigned char byte) {
    constexpr const char* kDigits = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    return {kDigits[byte >> 2], kDigits[(byte & 3) << 4], '=', '='};
}

/// All single bytes, the names of elements as tokens, and the markers of both formats.
const Tokenizer& tokenizer() {
    static const Tokenizer made = [] {
        std::string ranks;
        for (int byte = 0; byte < 256; ++byte) {
            ranks += base64_of(static_cast<unsigned char>(byte)) + " " + std::to_string(byte) + "\n";
        }
        // think, response, tools, call, argument, json, message, ` role="assistant"`, ` tool="x"`, ` key="k"`, "…", 😀[:3]
        const char* const kWords[] = {
            "dGhpbms=",     "cmVzcG9uc2U=", "dG9vbHM=",     "Y2FsbA==",
            "YXJndW1lbnQ=", "anNvbg==",     "bWVzc2FnZQ==", "IHJvbGU9ImFzc2lzdGFudCI=",
            "IHRvb2w9Ingi", "IGtleT0iayI=", "4oCm",         "8J+Y"};
        int id = 256;
        for (const char* word : kWords) ranks += std::string(word) + " " + std::to_string(id++) + "\n";
        std::string config = "{\"added_tokens_decoder\":{";
        const char* const kNames[] = {"<|open|>",
                                      "<|close|>",
                                      "<|sep|>",
                                      "<|end_of_msg|>",
                                      "<|im_user|>",
                                      "<|im_assistant|>",
                                      "<|im_system|>",
                                      "<|im_middle|>",
                                      "<|im_end|>",
                                      "<|tool_calls_section_begin|>",
                                      "<|tool_calls_section_end|>",
                                      "<|tool_call_begin|>",
                                      "<|tool_call_argument_begin|>",
                                      "<|tool_call_end|>"};
        for (const char* name : kNames) {
            config +=
                (id == kSpecial ? "\"" : ",\"") + std::to_string(id) + "\":{\"content\":\"" + name + "\"}";
            ++id;
        }
        auto tokenizer = Tokenizer::create(ranks, config + "}}", 512, "fuzz");
        if (!tokenizer) std::abort();
        return std::move(*tokenizer);
    }();
    return made;
}

void require(bool holds) {
    if (!holds) std::abort();
}

void check_reply(const std::vector<int32_t>& ids, ChatFormat format, ReplyReader::Start start) {
    ReplyReader reader(tokenizer(), format, start);
    std::string reasoning;
    const auto check = [&reasoning](const ReplyPiece& piece) {
        require(!first_invalid_utf8(piece.response) && !first_invalid_utf8(piece.reasoning));
        if (piece.reasoning_was_response) require(piece.response == reasoning);
        reasoning += piece.reasoning;
    };
    for (const int32_t id : ids) check(reader.push(id));
    const auto closing = tokenizer().encode_segments(reader.closing());
    require(closing.has_value());
    for (const int32_t id : *closing) check(reader.push(id));
    require(reader.ended() && !reader.in_reasoning());
    check(reader.finish());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    std::vector<int32_t> ids;
    for (size_t i = 0; i < size; ++i) {
        const int32_t byte = data[i];
        ids.push_back(byte < 192 ? byte : byte - 192 + 256);
    }
    for (const ChatFormat format : {ChatFormat::xtml, ChatFormat::im}) {
        for (const auto start :
             {ReplyReader::Start::message, ReplyReader::Start::response, ReplyReader::Start::think}) {
            check_reply(ids, format, start);
        }
        for (const auto& read : read_transcript(tokenizer(), format, ids)) {
            require(!first_invalid_utf8(read.message.content) && !first_invalid_utf8(read.message.reasoning));
        }
    }
    return 0;
}
