#include "engine/text/reply.h"

namespace waste::engine {

ReplyReader::ReplyReader(const Tokenizer& tokenizer, ChatFormat format, bool thinking)
    : tokenizer_(tokenizer), in_think_(thinking && format == ChatFormat::xtml) {
    if (format != ChatFormat::xtml) return;
    open_ = tokenizer.special("<|open|>").value_or(-1);
    close_ = tokenizer.special("<|close|>").value_or(-1);
    sep_ = tokenizer.special("<|sep|>").value_or(-1);
}

ReplyPiece ReplyReader::push(int32_t id) {
    if (id == open_ || id == close_) {
        ReplyPiece rest = finish();
        tag_ = id == open_ ? Tag::opening : Tag::closing;
        tag_text_.clear();
        return rest;
    }
    if (tag_ != Tag::none) {
        if (id != sep_) {
            tag_text_ += tokenizer_.bytes(id);
            return {};
        }
        // Attributes follow the name after a blank.
        if (tag_text_.substr(0, tag_text_.find(' ')) == "think") in_think_ = tag_ == Tag::opening;
        tag_ = Tag::none;
        return {};
    }
    if (tokenizer_.is_special(id)) return {};
    std::string text = utf8_.push(tokenizer_.bytes(id));
    return in_think_ ? ReplyPiece{"", std::move(text)} : ReplyPiece{std::move(text), ""};
}

ReplyPiece ReplyReader::finish() {
    std::string text = utf8_.finish();
    return in_think_ ? ReplyPiece{"", std::move(text)} : ReplyPiece{std::move(text), ""};
}

}  // namespace waste::engine
