// One call at a time on a session of the C interface.
#pragma once

#include "engine/c_api/objects.h"

namespace waste::c_api {

/// The session is this call's while the object lives, provided that got() says so.
class InUse {
  public:
    explicit InUse(waste_session& session)
        : session_(session), got_(!session.in_use.exchange(true, std::memory_order_acquire)) {}
    ~InUse() {
        if (got_) session_.in_use.store(false, std::memory_order_release);
    }
    InUse(const InUse&) = delete;
    InUse& operator=(const InUse&) = delete;

    bool got() const { return got_; }

  private:
    waste_session& session_;
    bool got_;
};

/// Runs `work(session)`, which returns Result<void>, while no other call is at work on it.
template <typename Work>
waste_status on_session(waste_session* session, const Work& work) noexcept {
    return guarded([&]() -> Result<void> {
        if (session == nullptr) return fail_null("session");
        const InUse use(*session);
        if (!use.got()) return fail(ErrorKind::invalid, "session", "another call is at work on it");
        return work(*session);
    });
}

inline tl::unexpected<Error> stopped() {
    return fail(ErrorKind::interrupted, "callback", "asked to stop");
}

}  // namespace waste::c_api
