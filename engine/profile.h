// Where the time of a forward pass goes, by component. Nothing is measured where there is no profile.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <string_view>

namespace waste::engine {

enum class Component : uint8_t {
    residual,  ///< embedding rows, mixes, norms, additions
    kda_projections,
    kda_heads,  ///< convolution, gates, recurrence, gated norm
    mla_projections,
    mla_attention,
    router,   ///< its product, the choice, the latent projection down
    experts,  ///< routed experts, their sum, the latent projection up
    mlp,      ///< dense layers and shared experts
    head,     ///< the last norm and lm_head
};
inline constexpr size_t kComponents = 9;
std::string_view component_name(Component component);  ///< "residual", "kda_projections", …

/// Wall time of the calling thread, which waits for the others' share of each region. One thread.
struct Profile {
    std::array<int64_t, kComponents> nanoseconds{};

    int64_t total() const;
};

/// Adds the time from its birth to its end to a component.
class Timed {
  public:
    Timed(Profile* profile, Component component) : profile_(profile), component_(component) {
        if (profile_) start_ = Clock::now();
    }
    ~Timed() {
        if (!profile_) return;
        const auto spent = std::chrono::nanoseconds(Clock::now() - start_);
        profile_->nanoseconds[static_cast<size_t>(component_)] += spent.count();
    }
    Timed(const Timed&) = delete;
    Timed& operator=(const Timed&) = delete;

  private:
    using Clock = std::chrono::steady_clock;
    Profile* profile_;
    Component component_;
    Clock::time_point start_;
};

}  // namespace waste::engine
