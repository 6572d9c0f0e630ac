// What the two chat formats share: behind chat.h, not for others.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "engine/text/chat.h"

namespace waste::engine {

/// Collects segments. Markers are string constants of the renderers; everything that comes from a message goes
/// through text().
class SegmentWriter {
  public:
    void marker(std::string_view name) { segments_.push_back({std::string(name), true}); }
    void text(std::string_view content) {
        if (!content.empty()) segments_.push_back({std::string(content), false});
    }
    std::vector<Segment> take() { return std::move(segments_); }

  private:
    std::vector<Segment> segments_;
};

/// "message 3", for errors.
std::string message_place(size_t index);

/// Of messages whose fields fit their roles.
Result<std::vector<Segment>> render_xtml(std::span<const ChatMessage> messages, const ChatOptions& options);
Result<std::vector<Segment>> render_im(std::span<const ChatMessage> messages, const ChatOptions& options);

}  // namespace waste::engine
