// Generation: sample, feed, stream, stop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "engine/session.h"

namespace waste::engine {

enum class StopReason { stop_token, stop_string, length, context, interrupted, error };
std::string_view stop_reason_name(StopReason reason);  ///< "stop_token", "length", …

struct GenerateOptions {
    int64_t max_tokens = 0;         ///< 0: until the model stops or the context is full
    std::vector<int32_t> stop_ids;  ///< end the generation and are not part of it
};

struct Generation {
    std::vector<int32_t> ids;  ///< generated, without the stop token
    StopReason reason;
    std::optional<Error> error;  ///< with StopReason::error; what was generated before it is not lost
};

/// Called with each token as it is chosen, before it is fed. keep_going: go on; stop_text: the text is
/// complete (a stop string was reached); interrupt: stop at once.
enum class OnTokenAnswer { keep_going, stop_text, interrupt };
using OnGenerated = std::function<OnTokenAnswer(int32_t id)>;

/// Continues a session that has logits, with its own sampler. A token that was chosen as the generation ended is in
/// the result and was not fed.
Generation generate(Session& session, const GenerateOptions& options, const OnGenerated& on_token);

/// Holds back text that may turn out to be the start of a stop string. One thread.
class StopStrings {
  public:
    explicit StopStrings(std::vector<std::string> stops) : stops_(std::move(stops)) {}

    /// What may be shown of the text so far. After found() nothing more comes.
    std::string push(std::string_view text);
    /// What was held back, at the end of a generation that ended otherwise.
    std::string finish();
    bool found() const { return found_; }

  private:
    std::vector<std::string> stops_;
    std::string held_;
    bool found_ = false;
};

}  // namespace waste::engine
