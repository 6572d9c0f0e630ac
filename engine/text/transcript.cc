#include "engine/text/transcript.h"

#include <optional>
#include <string_view>
#include <utility>

#include "engine/text/utf8.h"
#include "engine/text/xtml_reader.h"

namespace waste::engine {
namespace {

/// An assistant's message, by way of the reader of replies.
class AssistantReader {
  public:
    AssistantReader(const Tokenizer& tokenizer, ChatFormat format)
        : reply_(tokenizer, format, ReplyReader::Start::message) {}

    void push(int32_t id) { add(reply_.push(id)); }
    bool ended() const { return reply_.ended(); }
    void finish(ChatMessage& message) {
        add(reply_.finish());
        message.content = std::move(response_);
        message.reasoning = std::move(reasoning_);
        message.tool_calls = reply_.tool_calls();
    }

  private:
    void add(const ReplyPiece& piece) {
        if (piece.reasoning_was_response) reasoning_.clear();
        response_ += piece.response;
        reasoning_ += piece.reasoning;
    }

    ReplyReader reply_;
    std::string response_, reasoning_;
};

class XtmlTranscript {
  public:
    explicit XtmlTranscript(const Tokenizer& tokenizer) : tokenizer_(tokenizer), markup_(tokenizer) {}

    void push(int32_t id) {
        if (assistant_) {
            assistant_->push(id);
            if (assistant_->ended()) end(true);
            return;
        }
        XtmlEvent event = markup_.push(id);
        switch (event.kind) {
            case XtmlEvent::Kind::open:
                if (event.text == "message") begin(event);
                break;
            case XtmlEvent::Kind::close:
                // The body ends here; what stands between it and the end of the message is no part of it.
                in_body_ = in_body_ && event.text != "message";
                break;
            case XtmlEvent::Kind::text:
                if (in_body_) messages_.back().message.content += event.text;
                break;
            case XtmlEvent::Kind::message:
                if (in_body_) messages_.back().message.content += event.text;
                if (open_) end(true);
                break;
        }
    }

    std::vector<TranscriptMessage> finish() {
        if (in_body_) messages_.back().message.content += markup_.finish();
        if (open_) end(false);
        return std::move(messages_);
    }

  private:
    void begin(const XtmlEvent& event) {
        if (open_) end(false);
        TranscriptMessage begun;
        begun.message.role = event.attribute("role");
        begun.message.name = event.attribute(begun.message.role == "tool" ? "tool" : "name");
        begun.type = event.attribute("type");
        messages_.push_back(std::move(begun));
        open_ = true;
        in_body_ = messages_.back().message.role != "assistant";
        if (!in_body_) assistant_.emplace(tokenizer_, ChatFormat::xtml);
    }
    void end(bool complete) {
        if (assistant_) assistant_->finish(messages_.back().message);
        assistant_.reset();
        messages_.back().complete = complete;
        open_ = in_body_ = false;
    }

    const Tokenizer& tokenizer_;
    XtmlReader markup_;
    std::optional<AssistantReader> assistant_;
    std::vector<TranscriptMessage> messages_;
    bool open_ = false, in_body_ = false;
};

class ImTranscript {
  public:
    explicit ImTranscript(const Tokenizer& tokenizer) : tokenizer_(tokenizer) {}

    void push(int32_t id) {
        const std::string_view special =
            tokenizer_.is_special(id) ? tokenizer_.bytes(id) : std::string_view();
        if (special == "<|im_system|>" || special == "<|im_user|>" || special == "<|im_assistant|>") {
            end(false);
            part_ = Part::name;
            messages_.push_back({{std::string(special.substr(5, special.size() - 7)), ""}});
        } else if (special == "<|im_middle|>" && part_ == Part::name) {
            part_ = Part::body;
            name_ += utf8_.finish();
            if (messages_.back().message.role == "assistant") assistant_.emplace(tokenizer_, ChatFormat::im);
        } else if (special == "<|im_end|>") {
            end(true);
        } else if (assistant_) {
            assistant_->push(id);
        } else if (special.empty() && part_ != Part::none) {
            (part_ == Part::name ? name_ : messages_.back().message.content) +=
                utf8_.push(tokenizer_.bytes(id));
        }
    }

    std::vector<TranscriptMessage> finish() {
        end(false);
        return std::move(messages_);
    }

  private:
    enum class Part : uint8_t { none, name, body };

    void end(bool complete) {
        const std::string rest = utf8_.finish();
        if (part_ != Part::none) {
            ChatMessage& message = messages_.back().message;
            if (assistant_) {
                assistant_->finish(message);
            } else if (part_ == Part::body) {
                message.content += rest;
            }
            if (name_ != message.role) message.name = name_;
            messages_.back().complete = complete;
        }
        assistant_.reset();
        name_.clear();
        part_ = Part::none;
    }

    const Tokenizer& tokenizer_;
    Utf8Stream utf8_;
    Part part_ = Part::none;
    std::string name_;
    std::optional<AssistantReader> assistant_;
    std::vector<TranscriptMessage> messages_;
};

template <typename Reader>
std::vector<TranscriptMessage> read_all(Reader reader, std::span<const int32_t> ids) {
    for (const int32_t id : ids) reader.push(id);
    return reader.finish();
}

}  // namespace

std::vector<TranscriptMessage> read_transcript(const Tokenizer& tokenizer, ChatFormat format,
                                               std::span<const int32_t> ids) {
    return format == ChatFormat::xtml ? read_all(XtmlTranscript(tokenizer), ids)
                                      : read_all(ImTranscript(tokenizer), ids);
}

ReplyReader::Start reply_start(const Tokenizer& tokenizer, ChatFormat format,
                               std::span<const int32_t> prompt) {
    if (format == ChatFormat::im) return ReplyReader::Start::message;
    XtmlReader markup(tokenizer);
    auto start = ReplyReader::Start::message;
    for (const int32_t id : prompt) {
        const XtmlEvent event = markup.push(id);
        if (event.kind == XtmlEvent::Kind::text && event.text.empty()) continue;
        const bool opens = event.kind == XtmlEvent::Kind::open;
        start = opens && event.text == "think"      ? ReplyReader::Start::think
                : opens && event.text == "response" ? ReplyReader::Start::response
                                                    : ReplyReader::Start::message;
    }
    return start;
}

}  // namespace waste::engine
