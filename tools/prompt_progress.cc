#include "tools/prompt_progress.h"

#include <fmt/format.h>

#include <utility>

namespace waste::tools {
namespace {

// Shorter prompts are read before anybody wonders.
constexpr int64_t kWorthALine = 128;

bool streams(const engine::Model& model) {
    return model.experts().streams() || model.trunk().streams();
}

}  // namespace

PromptProgress::PromptProgress(engine::Session& session, int64_t tokens, bool quiet)
    : session_(session),
      tokens_(tokens),
      quiet_(quiet),
      known_(session.position()),
      drive_before_(session.model().counters().drive.bytes) {
    if (quiet || !streams(session.model())) return;
    session.set_on_layer(
        [this](int64_t layer, int64_t layers, int64_t block) { before_layer(layer, layers, block); });
}

PromptProgress::~PromptProgress() {
    session_.set_on_layer(nullptr);
}

void PromptProgress::after_block() {
    if (quiet_ || tokens_ < kWorthALine) return;
    line_.update(static_cast<uint64_t>(session_.position() - known_), static_cast<uint64_t>(tokens_), 0,
                 "reading the prompt");
}

void PromptProgress::before_layer(int64_t layer, int64_t layers, int64_t block) {
    // A layer counts for its share of the block's tokens.
    const int64_t done = session_.position() - known_ + block * layer / layers;
    const uint64_t read = session_.model().counters().drive.bytes - drive_before_;
    line_.update(
        static_cast<uint64_t>(done), static_cast<uint64_t>(tokens_), 0,
        fmt::format("reading the prompt: layer {} of {}, {} read", layer + 1, layers, bytes_text(read)));
    if (!interrupted() || std::exchange(told_, true)) return;
    line_.finish();
    put_err(fmt::format(
        "finishing a block of {} tokens, layer {} of {}; Ctrl-C again ends at once and loses it\n", block,
        layer + 1, layers));
}

}  // namespace waste::tools
