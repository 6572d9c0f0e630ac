#include "engine/prompt_cache.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "container/checksum.h"
#include "container/file.h"

namespace waste::engine {
namespace {

constexpr std::string_view kSuffix = ".prompt";

constexpr int64_t on_grid(int64_t position) {
    return position - position % kernels::kKdaChunk;
}

/// Up to where all was evaluated as it would be in one feed.
int64_t uniform_length(const History& history) {
    const auto& forms = history.chunked;
    return (std::find(forms.begin(), forms.end(), 0) - forms.begin()) * kernels::kKdaChunk;
}

int64_t common_length(std::span<const int32_t> a, std::span<const int32_t> b) {
    return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

/// The last state of the file at or before `most`, on the grid, that a prompt of `tokens` can go on from: a whole one
/// needs logits too.
int64_t last_state(const SavedSession& saved, int64_t most, int64_t tokens) {
    int64_t last = 0;
    const auto consider = [&](int64_t position, bool has_logits) {
        const bool fits = position <= most && position == on_grid(position);
        if (fits && (has_logits || position < tokens)) last = std::max(last, position);
    };
    for (const SavedCheckpoint& kept : saved.about().checkpoints) consider(kept.position, kept.has_logits);
    consider(saved.position(), saved.about().has_logits);
    return last;
}

}  // namespace

Result<PromptCache> PromptCache::open(const std::string& directory, uint64_t most_bytes) {
    if (!container::is_directory(directory)) {
        if (const auto made = container::make_directory(directory); !made) return pass(made);
    }
    return PromptCache(directory, most_bytes);
}

PromptCache::Match PromptCache::find(const std::string& fingerprint, int64_t context_length,
                                     std::span<const int32_t> ids) {
    Match best;
    const auto names = container::list_directory(directory_);
    if (!names) return warn(names.error()), Match{};
    for (const std::string& name : *names) {
        if (!name.ends_with(kSuffix) || !name.starts_with(fingerprint)) continue;
        const std::string path = container::join_path(directory_, name);
        auto saved = SavedSession::open(path);
        if (!saved) {
            if (saved.error().kind == ErrorKind::not_found) continue;  // another run made room
            warn(saved.error());
            if (saved.error().kind == ErrorKind::corrupt) static_cast<void>(container::remove_file(path));
            continue;
        }
        const int64_t common = on_grid(common_length(saved->history().tokens, ids));
        const int64_t uniform = std::min(common, uniform_length(saved->history()));
        const int64_t usable = last_state(*saved, uniform, static_cast<int64_t>(ids.size()));
        best.common = std::max(best.common, common);
        if (usable <= best.usable || saved->position() > context_length) continue;
        best.usable = usable;
        best.path = path;
        best.saved = std::move(*saved);
    }
    return best;
}

void PromptCache::resume(Session& session, const Match& match) {
    if (!match.saved) return;
    const auto turns = session.history().turns;
    const SamplerOptions sampler = session.sampler();
    if (const auto loaded = session.load(*match.saved, match.usable); !loaded) {
        warn(loaded.error());
        static_cast<void>(container::remove_file(match.path));
    } else if (const auto touched = container::touch_file(match.path); !touched) {
        warn(touched.error());
    }
    session.start_anew(turns, sampler);
}

Result<int64_t> PromptCache::read(Session& session, std::span<const int32_t> ids,
                                  const Session::OnBlock& on_block) {
    Match match = find(session.model().container().manifest().fingerprint, session.context_length(), ids);
    resume(session, match);
    const int64_t reused = session.position();
    bool stopped = false;
    const auto feed_to = [&](int64_t position) -> Result<void> {
        if (stopped || position <= session.position()) return {};
        const auto part = ids.subspan(static_cast<size_t>(session.position()),
                                      static_cast<size_t>(position - session.position()));
        const auto ok = session.feed(part, nullptr, on_block);
        stopped = session.position() != position;
        return ok;
    };
    const int64_t end = on_grid(static_cast<int64_t>(ids.size()));
    if (const auto ok = feed_to(match.common); !ok) return pass(ok);
    if (session.position() == match.common) session.keep_checkpoint();
    if (const auto ok = feed_to(end); !ok) return pass(ok);
    // A few new tokens behind a long beginning are read faster than they are written.
    constexpr int64_t kWorthKeeping = 16;
    if (!stopped && (end - reused) * kWorthKeeping > end) keep(session);
    if (const auto ok = feed_to(static_cast<int64_t>(ids.size())); !ok) return pass(ok);
    return reused;
}

void PromptCache::keep(Session& session) {
    const auto bytes = std::as_bytes(session.tokens());
    const std::string name = session.model().container().manifest().fingerprint + "-" +
                             container::to_hex(container::xxh3_64(bytes)) + std::string(kSuffix);
    const std::string path = container::join_path(directory_, name);
    SaveOptions options;
    options.replace = true;
    if (const auto saved = session.save(path, options); !saved) return warn(saved.error());
    remove_oldest();
}

void PromptCache::remove_oldest() {
    struct Entry {
        int64_t time;
        uint64_t bytes;
        std::string path;
    };
    const auto names = container::list_directory(directory_);
    if (!names) return warn(names.error());
    std::vector<Entry> entries;
    uint64_t total = 0;
    for (const std::string& name : *names) {
        if (!name.ends_with(kSuffix)) continue;
        const std::string path = container::join_path(directory_, name);
        const auto time = container::file_time(path);
        const auto bytes = container::file_size(path);
        if (!time || !bytes) continue;  // another run removed it
        entries.push_back({*time, *bytes, path});
        total += *bytes;
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.time < b.time; });
    for (const Entry& entry : entries) {
        if (total <= most_bytes_) return;
        if (const auto removed = container::remove_file(entry.path); !removed) return warn(removed.error());
        total -= entry.bytes;
    }
}

}  // namespace waste::engine
