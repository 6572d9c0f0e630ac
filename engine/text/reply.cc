#include "engine/text/reply.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>
#include <utility>

#include "engine/text/json_text.h"

namespace waste::engine {
namespace {

/// The format nests four deep. Of a model gone astray, deeper elements are not told apart.
constexpr size_t kMaxElements = 16;

bool is_channel(std::string_view tag) {
    return tag == "think" || tag == "response" || tag == "tools";
}

/// An argument's value as JSON; what its type does not fit is a string.
std::string argument_json(std::string_view type, std::string_view text) {
    return type != "string" && nlohmann::json::accept(text) ? std::string(text) : json_string(text);
}

/// Of `functions.NAME:INDEX`, the ids of im, the name.
std::string function_name(std::string_view id) {
    id = id.substr(0, id.rfind(':'));
    const size_t dot = id.find('.');
    return std::string(dot == std::string_view::npos ? id : id.substr(dot + 1));
}

std::string trimmed(std::string_view text) {
    constexpr std::string_view kBlanks = " \t\r\n";
    const size_t begin = std::min(text.find_first_not_of(kBlanks), text.size());
    const size_t end = text.find_last_not_of(kBlanks);
    return std::string(text.substr(begin, end == std::string_view::npos ? 0 : end + 1 - begin));
}

}  // namespace

ReplyReader::ReplyReader(const Tokenizer& tokenizer, ChatFormat format, Start start)
    : tokenizer_(tokenizer),
      format_(format),
      markup_(tokenizer),
      may_be_response_(start == Start::think),
      had_response_(start == Start::response) {
    if (format == ChatFormat::im) return;
    elements_.emplace_back("message");
    if (start != Start::message) elements_.emplace_back(start == Start::think ? "think" : "response");
}

bool ReplyReader::in_reasoning() const {
    return channel() == "think";
}

ReplyPiece ReplyReader::push(int32_t id) {
    if (format_ == ChatFormat::im) return push_im(id);
    if (ended_) return {};
    XtmlEvent event = markup_.push(id);
    switch (event.kind) {
        case XtmlEvent::Kind::text:
            return piece(std::move(event.text));
        case XtmlEvent::Kind::open:
            open_element(event);
            return {};
        case XtmlEvent::Kind::close:
            return close_element(event.text);
        case XtmlEvent::Kind::message: {
            ReplyPiece rest = piece(std::move(event.text));
            leave_until(0);
            ended_ = true;
            return rest;
        }
    }
    return {};
}

ReplyPiece ReplyReader::finish() {
    return piece(format_ == ChatFormat::im ? utf8_.finish() : markup_.finish());
}

std::string_view ReplyReader::channel() const {
    return elements_.size() > 1 ? std::string_view(elements_[1]) : std::string_view();
}

/// Text goes where the open elements say.
ReplyPiece ReplyReader::piece(std::string text) {
    ReplyPiece out;
    if (channel() == "think") {
        if (may_be_response_) reasoning_ += text;
        out.reasoning = std::move(text);
    } else if (channel() == "tools" || in_section_) {
        value_ += text;
    } else {
        out.response = std::move(text);
    }
    return out;
}

void ReplyReader::open_element(const XtmlEvent& event) {
    if (is_channel(event.text)) leave_until(1);
    if (elements_.size() == kMaxElements) return;
    if (event.text == "response") had_response_ = true;
    elements_.push_back(event.text);
    if (channel() != "tools") return;
    if (event.text == "call") {
        end_call();
        in_call_ = true;
        call_ = {"", std::string(event.attribute("tool")), ""};
    } else if (event.text == "argument" || event.text == "json") {
        key_ = event.attribute("key");
        type_ = event.attribute("type");
    }
    value_.clear();
}

ReplyPiece ReplyReader::close_element(const std::string& tag) {
    const auto found = std::find(elements_.rbegin(), elements_.rend(), tag);
    if (found != elements_.rend()) {
        leave_until(static_cast<size_t>(elements_.rend() - found) - 1);
        return {};
    }
    if (tag != "response" || !may_be_response_) return {};
    leave_until(1);
    had_response_ = true;
    return {std::move(reasoning_), "", true};
}

void ReplyReader::leave_until(size_t depth) {
    while (elements_.size() > depth) leave_element();
}

void ReplyReader::leave_element() {
    const std::string tag = std::move(elements_.back());
    elements_.pop_back();
    if (tag == "think") {
        may_be_response_ = false;
    } else if (tag == "call") {
        end_call();
    } else if (in_call_ && tag == "argument") {
        if (!members_.empty()) members_ += ", ";
        members_ += json_string(key_) + ": " + argument_json(type_, value_);
    } else if (in_call_ && tag == "json") {
        call_.arguments = value_;
    }
}

void ReplyReader::end_call() {
    if (!in_call_) return;
    in_call_ = false;
    if (!members_.empty()) call_.arguments = "{" + std::exchange(members_, {}) + "}";
    calls_.push_back(std::exchange(call_, {}));
}

ReplyPiece ReplyReader::push_im(int32_t id) {
    if (!tokenizer_.is_special(id)) return piece(utf8_.push(tokenizer_.bytes(id)));
    ReplyPiece rest = piece(utf8_.finish());
    const std::string_view name = tokenizer_.bytes(id);
    if (name == "<|im_end|>") {
        ended_ = true;
    } else if (name == "<|tool_calls_section_begin|>") {
        in_section_ = true;
    } else if (name == "<|tool_calls_section_end|>") {
        end_call();
        in_section_ = false;
    } else if (name == "<|tool_call_begin|>") {
        end_call();
        in_section_ = in_call_ = true;
    } else if (name == "<|tool_call_argument_begin|>" && in_call_) {
        call_.id = trimmed(value_);
        call_.name = function_name(call_.id);
    } else if (name == "<|tool_call_end|>" && in_call_) {
        call_.arguments = trimmed(value_);
        end_call();
    }
    value_.clear();
    return rest;
}

/// Completes a tag that the tokens end inside of; what is open then.
std::vector<std::string> ReplyReader::end_open_tag(std::vector<Segment>& out) const {
    std::vector<std::string> open = elements_;
    if (markup_.tag() == XtmlReader::Tag::none) return open;
    Utf8Stream whole;
    std::string tag = whole.push(markup_.tag_text());
    tag += whole.finish();
    const bool opening = markup_.tag() == XtmlReader::Tag::opening;
    const std::string likely = !opening && !open.empty() ? open.back() : open.size() == 1 ? "response" : "";
    if (likely.starts_with(tag) && likely != tag) {
        out.push_back({likely.substr(tag.size()), false});
        tag = likely;
    }
    out.push_back({"<|sep|>", true});
    if (opening) {
        open.push_back(tag.substr(0, tag.find(' ')));
    } else if (const auto found = std::find(open.rbegin(), open.rend(), tag); found != open.rend()) {
        open.erase(found.base() - 1, open.end());
    }
    return open;
}

std::vector<Segment> ReplyReader::closing() const {
    std::vector<Segment> out;
    if (format_ == ChatFormat::im) {
        if (in_call_) out.push_back({"<|tool_call_end|>", true});
        if (in_section_) out.push_back({"<|tool_calls_section_end|>", true});
        if (!ended_) out.push_back({"<|im_end|>", true});
        return out;
    }
    if (ended_) return out;
    const auto add = [&out](std::string_view marker, const std::string& tag) {
        out.push_back({std::string(marker), true});
        if (!tag.empty()) out.push_back({tag, false});
        out.push_back({"<|sep|>", true});
    };
    std::vector<std::string> open = end_open_tag(out);
    bool responded = had_response_;
    while (!open.empty()) {
        if (open.back() == "response") responded = true;
        if (open.size() == 1 && open.back() == "message" && !responded) {
            add("<|open|>", "response");
            add("<|close|>", "response");
        }
        add("<|close|>", open.back());
        open.pop_back();
    }
    out.push_back({"<|end_of_msg|>", true});
    return out;
}

}  // namespace waste::engine
