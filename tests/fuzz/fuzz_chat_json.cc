// Any text as a conversation: it is refused, or it renders or is refused, and no message's text becomes a marker.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string_view>

#include "engine/text/chat_json.h"

using namespace waste::engine;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
    const std::string_view text(reinterpret_cast<const char*>(data), size);
    const auto request = parse_chat_json(text, {}, "input");
    if (!request) return 0;
    static const std::set<std::string_view> kMarkers = {"<|open|>",       "<|close|>",     "<|sep|>",
                                                        "<|end_of_msg|>", "<|im_user|>",   "<|im_assistant|>",
                                                        "<|im_end|>",     "<|im_system|>", "<|im_middle|>"};
    for (const ChatFormat format : {ChatFormat::xtml, ChatFormat::im}) {
        const auto segments = render_chat(format, request->messages, request->options);
        if (!segments) continue;
        for (const Segment& segment : *segments) {
            if (segment.special && !kMarkers.contains(segment.text)) std::abort();
            if (segment.text.empty()) std::abort();
        }
    }
    return 0;
}
