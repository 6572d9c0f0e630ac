#include "tests/bench/cache_trace.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "container/file.h"

namespace waste::bench {
namespace {

using nlohmann::json;

constexpr uint64_t kMaxTraceBytes = uint64_t{4} << 30;

/// Appends rows of `width` numbers (0: the first row decides); false where they are not that.
template <typename T>
bool append_rows(const json& rows, int64_t row_count, int64_t& width, std::vector<T>& out) {
    if (!rows.is_array() || static_cast<int64_t>(rows.size()) != row_count) return false;
    for (const json& row : rows) {
        if (!row.is_array()) return false;
        if (width == 0) width = static_cast<int64_t>(row.size());
        if (static_cast<int64_t>(row.size()) != width) return false;
        for (const json& value : row) {
            if (!value.is_number()) return false;
            out.push_back(value.get<T>());
        }
    }
    return true;
}

bool append_line(std::string_view line, int64_t& score_width, CacheTrace& trace) {
    const json token = json::parse(line, nullptr, false);
    if (!token.is_object() || !token.contains("layers")) return false;
    const json& layers = token["layers"];
    if (trace.layers == 0) trace.layers = static_cast<int64_t>(layers.size());
    if (!append_rows(layers, trace.layers, trace.top_k, trace.ids)) return false;
    if (token.contains("scores") && !append_rows(token["scores"], trace.layers, score_width, trace.scores))
        return false;
    trace.tokens++;
    return true;
}

}  // namespace

Result<CacheTrace> read_cache_trace(const std::string& path, int64_t experts) {
    const auto text = container::read_text_file(path, kMaxTraceBytes);
    if (!text) return pass(text);
    CacheTrace trace;
    int64_t score_width = 0;
    for (size_t begin = 0; begin < text->size();) {
        const size_t end = std::min(text->find('\n', begin), text->size());
        const std::string_view line = std::string_view(*text).substr(begin, end - begin);
        if (!line.empty() && !append_line(line, score_width, trace)) {
            return fail(ErrorKind::corrupt, path,
                        fmt::format("token {} is not one of a routing trace", trace.tokens));
        }
        begin = end + 1;
    }
    if (trace.ids.empty()) return fail(ErrorKind::corrupt, path, "has no tokens");
    const auto [least, most] = std::minmax_element(trace.ids.begin(), trace.ids.end());
    trace.experts = experts > 0 ? experts : score_width > 0 ? score_width : *most + 1;
    const bool scored = trace.scores.size() == static_cast<size_t>(trace.tokens * trace.keys());
    if (*least < 0 || *most >= trace.experts || trace.top_k > trace.experts || (score_width > 0 && !scored)) {
        return fail(ErrorKind::corrupt, path,
                    fmt::format("does not fit a model of {} experts", trace.experts));
    }
    return trace;
}

}  // namespace waste::bench
