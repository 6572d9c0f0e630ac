#include "engine/text/xtml_reader.h"

#include <utility>

namespace waste::engine {
namespace {

/// Undoes what the renderer does to attribute values.
std::string unescaped(std::string_view value) {
    std::string text;
    for (size_t i = 0; i < value.size();) {
        const std::string_view rest = value.substr(i);
        const std::string_view escape = rest.starts_with("&quot;")  ? "&quot;"
                                        : rest.starts_with("&amp;") ? "&amp;"
                                                                    : "";
        text += escape.empty() ? rest.front() : escape == "&amp;" ? '&' : '"';
        i += escape.empty() ? 1 : escape.size();
    }
    return text;
}

/// `NAME KEY="VALUE" …`; what does not look like this is left out from there on.
XtmlEvent parse_tag(XtmlEvent::Kind kind, std::string_view bytes) {
    Utf8Stream utf8;
    const std::string text = utf8.push(bytes) + utf8.finish();
    std::string_view rest = text;
    XtmlEvent event{kind, std::string(rest.substr(0, rest.find(' ')))};
    rest.remove_prefix(event.text.size());
    while (rest.starts_with(' ')) {
        rest.remove_prefix(1);
        const size_t name_end = rest.find("=\"");
        if (name_end == std::string_view::npos) break;
        const size_t value_begin = name_end + 2;
        const size_t value_end = rest.find('"', value_begin);
        if (value_end == std::string_view::npos) break;
        event.attributes.push_back({std::string(rest.substr(0, name_end)),
                                    unescaped(rest.substr(value_begin, value_end - value_begin))});
        rest.remove_prefix(value_end + 1);
    }
    return event;
}

}  // namespace

std::string_view XtmlEvent::attribute(std::string_view name) const {
    for (const XtmlAttribute& attribute : attributes) {
        if (attribute.name == name) return attribute.value;
    }
    return {};
}

XtmlReader::XtmlReader(const Tokenizer& tokenizer)
    : tokenizer_(tokenizer),
      open_(tokenizer.special("<|open|>").value_or(-1)),
      close_(tokenizer.special("<|close|>").value_or(-1)),
      sep_(tokenizer.special("<|sep|>").value_or(-1)),
      end_(tokenizer.special("<|end_of_msg|>").value_or(-1)) {}

XtmlEvent XtmlReader::push(int32_t id) {
    if (id < 0) return {};
    if (id == open_ || id == close_) {
        tag_ = id == open_ ? Tag::opening : Tag::closing;
        tag_text_.clear();
        return {XtmlEvent::Kind::text, utf8_.finish()};
    }
    if (id == end_) {
        tag_ = Tag::none;
        return {XtmlEvent::Kind::message, utf8_.finish()};
    }
    if (id == sep_ && tag_ != Tag::none) {
        const auto kind = tag_ == Tag::opening ? XtmlEvent::Kind::open : XtmlEvent::Kind::close;
        tag_ = Tag::none;
        return parse_tag(kind, tag_text_);
    }
    if (tokenizer_.is_special(id)) return {};
    if (tag_ == Tag::none) return {XtmlEvent::Kind::text, utf8_.push(tokenizer_.bytes(id))};
    if (tag_text_.size() < kMaxTagBytes) tag_text_ += tokenizer_.bytes(id);
    return {};
}

}  // namespace waste::engine
