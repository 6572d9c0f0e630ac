#include "engine/generate.h"

#include <algorithm>

namespace waste::engine {

std::string_view stop_reason_name(StopReason reason) {
    switch (reason) {
        case StopReason::stop_token:
            return "stop_token";
        case StopReason::stop_string:
            return "stop_string";
        case StopReason::length:
            return "length";
        case StopReason::context:
            return "context";
        case StopReason::interrupted:
            return "interrupted";
        case StopReason::error:
            return "error";
    }
    return "";
}

namespace {

bool contains(const std::vector<int32_t>& ids, int32_t id) {
    return std::find(ids.begin(), ids.end(), id) != ids.end();
}

}  // namespace

Generation generate(Session& session, const GenerateOptions& options, const OnGenerated& on_token) {
    Generation out{{}, StopReason::error, std::nullopt};
    if (session.logits().empty()) {
        out.error = Error{ErrorKind::invalid, "session", "has no token to go on from"};
        return out;
    }
    auto sampler = Sampler::create(session.sampler(), static_cast<int64_t>(session.logits().size()));
    if (!sampler) {
        out.error = sampler.error();
        return out;
    }
    while (true) {
        if (options.max_tokens > 0 && static_cast<int64_t>(out.ids.size()) >= options.max_tokens) {
            out.reason = StopReason::length;
            return out;
        }
        if (session.position() == session.context_length()) {
            out.reason = StopReason::context;
            return out;
        }
        const auto id = sampler->sample(session.logits(), session.tokens(), session.position());
        if (!id) {
            out.error = id.error();
            return out;
        }
        if (contains(options.stop_ids, *id)) {
            out.reason = StopReason::stop_token;
            return out;
        }
        out.ids.push_back(*id);
        const OnTokenAnswer answer = on_token(*id);
        if (answer != OnTokenAnswer::keep_going) {
            out.reason =
                answer == OnTokenAnswer::stop_text ? StopReason::stop_string : StopReason::interrupted;
            return out;
        }
        if (const auto ok = session.feed({&*id, 1}); !ok) {
            out.error = ok.error();
            return out;
        }
    }
}

std::string StopStrings::push(std::string_view text) {
    if (found_) return {};
    held_ += text;
    size_t first = std::string::npos;
    for (const std::string& stop : stops_) first = std::min(first, held_.find(stop));
    if (first != std::string::npos) {
        found_ = true;
        return held_.substr(0, first);
    }
    // The longest end of what is held that is the start of a stop string stays.
    size_t keep = 0;
    for (const std::string& stop : stops_) {
        for (size_t n = std::min(stop.size(), held_.size()); n > keep; n--) {
            if (std::string_view(held_).substr(held_.size() - n) == std::string_view(stop).substr(0, n))
                keep = n;
        }
    }
    std::string shown = held_.substr(0, held_.size() - keep);
    held_.erase(0, shown.size());
    return shown;
}

std::string StopStrings::finish() {
    return found_ ? std::string() : std::move(held_);
}

}  // namespace waste::engine
