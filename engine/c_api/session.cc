// Sessions across the C interface: made, fed, looked at.
#include "engine/c_api/session.h"

#include <fmt/format.h>
#include <sched.h>

#include <span>
#include <utility>

namespace waste::c_api {
namespace {

/// A session binds the thread that makes it, and a program's threads are the program's: this one is put back.
class KeepAffinity {
  public:
    KeepAffinity() : known_(sched_getaffinity(0, sizeof cpus_, &cpus_) == 0) {}
    ~KeepAffinity() {
        if (known_) (void)sched_setaffinity(0, sizeof cpus_, &cpus_);
    }
    KeepAffinity(const KeepAffinity&) = delete;
    KeepAffinity& operator=(const KeepAffinity&) = delete;

  private:
    cpu_set_t cpus_{};
    bool known_;
};

Result<engine::SessionOptions> session_options(const OpenModel& open, const waste_session_options* given) {
    const auto options = read_struct(given, "waste_session_options");
    if (!options) return pass(options);
    engine::SessionOptions out = open.options.session;
    if (options->context_length < 0 || options->context_length > out.context_length) {
        return fail(ErrorKind::invalid, "waste_session_options.context_length",
                    fmt::format("{} does not lie in 0..{}, which the model was opened for",
                                options->context_length, out.context_length));
    }
    if (options->threads < 0 || options->threads > out.threads) {
        return fail(ErrorKind::invalid, "waste_session_options.threads",
                    fmt::format("{} does not lie in 0..{}, which the model was opened for", options->threads,
                                out.threads));
    }
    if (options->context_length > 0) out.context_length = options->context_length;
    if (options->threads > 0) {
        out.threads = options->threads;
        if (!open.options.chosen_cpus) out.binding = engine::choose_placement(out.threads).binding;
    }
    return out;
}

Result<void> create(const waste_model* model, const waste_session_options* given, waste_session** session) {
    if (model == nullptr) return fail_null("model");
    if (session == nullptr) return fail_null("session");
    const auto options = session_options(*model->open, given);
    if (!options) return pass(options);
    const KeepAffinity affinity;
    auto made = engine::Session::create(model->open->model, *options);
    if (!made) return pass(made);
    engine::SamplerOptions sampler;
    sampler.top_p = 0.95f;  // the command line's
    made->set_sampler(sampler);
    *session = new waste_session{model->open, std::move(*made)};
    return {};
}

/// What the engine asks after each block; `was_stopped` keeps the answer.
engine::Session::OnBlock ask(waste_session& s, waste_on_block on_block, void* user, bool& was_stopped) {
    if (on_block == nullptr) return nullptr;
    return [&s, on_block, user, &was_stopped] {
        was_stopped = on_block(s.session.state().position, user) != 0;
        return !was_stopped;
    };
}

Result<void> feed(waste_session& s, std::span<const int32_t> ids, waste_on_block on_block, void* user) {
    if (ids.data() == nullptr && !ids.empty()) return fail_null("ids");
    bool was_stopped = false;
    s.text = {};
    const auto fed = s.session.feed(ids, nullptr, ask(s, on_block, user, was_stopped));
    if (!fed) return fed;
    if (was_stopped) return stopped();
    return {};
}

Result<void> rewind(waste_session& s, int64_t position, waste_on_block on_block, void* user,
                    int64_t* evaluated) {
    bool was_stopped = false;
    s.text = {};
    const auto rewound = s.session.rewind(position, ask(s, on_block, user, was_stopped));
    if (!rewound) return pass(rewound);
    if (evaluated != nullptr) *evaluated = rewound->evaluated;
    if (was_stopped) return stopped();
    return {};
}

Result<void> save(waste_session& s, const char* path, const waste_save_options* given) {
    if (path == nullptr) return fail_null("path");
    const auto options = read_struct(given, "waste_save_options");
    if (!options) return pass(options);
    engine::SaveOptions save;
    save.replace = options->replace != 0;
    if (options->half != 0) save.recurrent = save.latents = engine::StateFormat::bf16;
    const auto saved = s.session.save(path, save);
    if (!saved) return pass(saved);
    return {};
}

Result<void> load(waste_session& s, const char* path) {
    if (path == nullptr) return fail_null("path");
    const auto saved = engine::SavedSession::open(path);
    if (!saved) return pass(saved);
    s.text = {};
    return s.session.load(*saved);
}

/// An exception may leave a session half changed: then it is emptied, and the exception goes on.
template <typename Work>
Result<void> whole_or_empty(waste_session& s, const Work& work) {
    try {
        return work();
    } catch (...) {
        s.session.clear();
        throw;
    }
}

}  // namespace
}  // namespace waste::c_api

using namespace waste::c_api;

extern "C" {

waste_status waste_session_create(const waste_model* model, const waste_session_options* options,
                                  waste_session** session) {
    return guarded([&] { return create(model, options, session); });
}

void waste_session_destroy(waste_session* session) {
    const KeepAffinity affinity;
    delete session;
}

waste_status waste_session_feed(waste_session* session, const int32_t* ids, size_t count,
                                waste_on_block on_block, void* user) {
    return on_session(session, [&](waste_session& s) { return feed(s, {ids, count}, on_block, user); });
}

waste_status waste_session_logits(const waste_session* session, const float** logits, size_t* count) {
    return guarded([&]() -> waste::Result<void> {
        if (session == nullptr) return fail_null("session");
        if (logits == nullptr || count == nullptr) return fail_null("logits or count");
        const auto values = session->session.logits();
        *logits = values.data();
        *count = values.size();
        return {};
    });
}

waste_status waste_session_tokens(const waste_session* session, const int32_t** ids, size_t* count) {
    return guarded([&]() -> waste::Result<void> {
        if (session == nullptr) return fail_null("session");
        if (ids == nullptr || count == nullptr) return fail_null("ids or count");
        const auto tokens = session->session.tokens();
        *ids = tokens.data();
        *count = tokens.size();
        return {};
    });
}

waste_status waste_session_position(const waste_session* session, int64_t* position) {
    return guarded([&]() -> waste::Result<void> {
        if (session == nullptr) return fail_null("session");
        if (position == nullptr) return fail_null("position");
        *position = session->session.position();
        return {};
    });
}

waste_status waste_session_begin_turn(waste_session* session, int32_t role) {
    return on_session(session, [&](waste_session& s) -> waste::Result<void> {
        if (role < WASTE_ROLE_SYSTEM || role > WASTE_ROLE_TOOL) {
            return waste::fail(waste::ErrorKind::invalid, "role",
                               fmt::format("{} is none of WASTE_ROLE_...", role));
        }
        s.session.begin_turn(static_cast<waste::engine::TurnRole>(role));
        return {};
    });
}

waste_status waste_session_rewind(waste_session* session, int64_t position, waste_on_block on_block,
                                  void* user, int64_t* evaluated) {
    return on_session(session, [&](waste_session& s) {
        return whole_or_empty(s, [&] { return rewind(s, position, on_block, user, evaluated); });
    });
}

waste_status waste_session_clear(waste_session* session) {
    return on_session(session, [](waste_session& s) -> waste::Result<void> {
        s.text = {};
        s.session.clear();
        return {};
    });
}

waste_status waste_session_save(waste_session* session, const char* path, const waste_save_options* options) {
    return on_session(session, [&](waste_session& s) { return save(s, path, options); });
}

waste_status waste_session_load(waste_session* session, const char* path) {
    return on_session(session,
                      [&](waste_session& s) { return whole_or_empty(s, [&] { return load(s, path); }); });
}

}  // extern "C"
