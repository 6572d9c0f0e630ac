#include "engine/routing_trace.h"

#include <fmt/format.h>

#include <iterator>

namespace waste::engine {
namespace {

constexpr size_t kWriteBytes = size_t{1} << 20;

template <typename T>
void append_row(std::string& out, std::span<const T> values) {
    fmt::format_to(std::back_inserter(out), "{}[{}]", out.empty() ? "" : ", ", fmt::join(values, ", "));
}

}  // namespace

Result<RoutingTrace> RoutingTrace::create(const std::string& path, const ModelConfig& config,
                                          bool with_scores) {
    auto file = container::OutputFile::create(path, container::OutputFile::Existing::replace);
    if (!file) return pass(file);
    return RoutingTrace(std::move(*file), config.moe_layer_count(), with_scores);
}

RoutingTrace::RoutingTrace(container::OutputFile file, int64_t layers, bool with_scores)
    : file_(std::move(file)), layers_(layers), with_scores_(with_scores) {}

void RoutingTrace::on_router(int64_t, int64_t position, std::span<const int32_t> ids, std::span<const float>,
                             float, std::span<const float> scores) {
    Line& line = unfinished_[position];
    append_row(line.layers, ids);
    if (with_scores_) append_row(line.scores, scores);
    if (++line.layer_count < layers_) return;
    fmt::format_to(std::back_inserter(text_), R"({{"position": {}, "layers": [{}])", position, line.layers);
    if (with_scores_) fmt::format_to(std::back_inserter(text_), R"(, "scores": [{}])", line.scores);
    text_ += "}\n";
    unfinished_.erase(position);
    if (text_.size() >= kWriteBytes) write_text();
}

void RoutingTrace::write_text() {
    if (!error_) {
        const auto written = file_.write_at(offset_bytes_, std::as_bytes(std::span(text_)));
        if (!written) error_ = written.error();
    }
    offset_bytes_ += text_.size();
    text_.clear();
}

Result<void> RoutingTrace::finish() {
    write_text();
    if (error_) return tl::unexpected<Error>(*error_);
    return file_.commit();
}

}  // namespace waste::engine
