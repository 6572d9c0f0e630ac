// Sessions to files and back. What lies in the file that a session came from, and has not changed, is taken over
// instead of being written again.
#include "engine/session_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <optional>

#include "engine/session.h"

namespace waste::engine {
namespace {

constexpr uint64_t kMostAboutBytes = uint64_t{64} << 20;

/// A section of bytes, whose size the file says and `most_bytes` bounds.
Result<void> read_bytes(const container::SectionFile& file, SectionKind kind, uint64_t most_bytes,
                        std::vector<std::byte>& out) {
    const auto name = section_name(kind);
    const container::SectionEntry* entry = file.find(name);
    if (entry == nullptr) {
        return fail(ErrorKind::corrupt, file.path(), fmt::format("{}: missing", section_text(name)));
    }
    if (entry->raw_bytes > most_bytes) {
        return fail(ErrorKind::corrupt, file.path(),
                    fmt::format("{}: {} bytes are too many", section_text(name), entry->raw_bytes));
    }
    out.resize(entry->raw_bytes);
    return file.read(*entry, section_text(name), out);
}

/// The positions of a latents section that begins at `first`.
int64_t block_length(int64_t first, int64_t position) {
    return std::min(kLatentBlock, position - first);
}

struct StateCopy {
    int64_t number;
    bool has_logits;
};

/// Which copy of the recurrent part a file has of that position.
std::optional<StateCopy> state_at(const SavedSession& saved, int64_t position) {
    if (position == saved.position()) return StateCopy{kPresentState, saved.about().has_logits};
    uint32_t index = 0;
    for (const SavedCheckpoint& kept : saved.about().checkpoints) {
        if (kept.position == position) return StateCopy{checkpoint_copy(index), kept.has_logits};
        index++;
    }
    return std::nullopt;
}

/// Whether that file holds the section just as it would be written.
const container::SectionEntry* carried(const container::SectionFile& file, const container::SectionName& name,
                                       StateFormat format) {
    const container::SectionEntry* entry = file.find(name);
    return entry != nullptr && entry->element == static_cast<uint32_t>(format) ? entry : nullptr;
}

}  // namespace

Result<SavedSession> SavedSession::open(const std::string& path) {
    auto file = container::SectionFile::open(path);
    if (!file) return pass(file);
    SavedSession saved;
    saved.file_ = std::make_shared<container::SectionFile>(std::move(*file));
    if (const auto read = saved.read_about(); !read) return pass(read);
    if (const auto read = saved.read_tokens(); !read) return pass(read);
    return saved;
}

Result<void> SavedSession::read_about() {
    std::vector<std::byte> bytes;
    if (const auto read = read_bytes(*file_, SectionKind::about, kMostAboutBytes, bytes); !read) return read;
    auto about = parse_about({reinterpret_cast<const char*>(bytes.data()), bytes.size()}, file_->path());
    if (!about) return pass(about);
    about_ = std::move(*about);
    return {};
}

Result<void> SavedSession::read_tokens() {
    const auto tokens = static_cast<uint64_t>(about_.position);
    const uint64_t chunks = tokens / kernels::kKdaChunk;
    std::vector<std::byte> bytes;
    if (const auto read = read_bytes(*file_, SectionKind::tokens, tokens * sizeof(int32_t), bytes); !read)
        return read;
    if (bytes.size() == tokens * sizeof(int32_t)) {
        history_.tokens.resize(tokens);
        std::memcpy(history_.tokens.data(), bytes.data(), bytes.size());
        if (const auto read = read_bytes(*file_, SectionKind::chunked, chunks, bytes); !read) return read;
    }
    const auto is_form = [](std::byte form) { return form <= std::byte{1}; };
    if (history_.tokens.size() != tokens || bytes.size() != chunks ||
        !std::all_of(bytes.begin(), bytes.end(), is_form)) {
        return fail(ErrorKind::corrupt, file_->path(),
                    "the tokens are not as many as the description says; the session file is damaged");
    }
    for (const std::byte form : bytes) history_.chunked.push_back(static_cast<uint8_t>(form));
    history_.turns = about_.turns;
    history_.seeds = about_.seeds;
    return {};
}

Result<void> SavedSession::verify() const {
    for (const container::SectionEntry& entry : file_->entries()) {
        if (const auto ok = file_->verify(entry, section_text(entry.name)); !ok) return ok;
    }
    return {};
}

Result<SaveReport> Session::save(const std::string& path, const SaveOptions& options) {
    if (broken_) {
        return fail(ErrorKind::invalid, "session",
                    "an earlier error left it half-computed; go back to a checkpoint before saving");
    }
    if (!options.replace && container::is_file(path)) {
        const auto there = container::SectionFile::open(path);
        if (!there) return fail(there.error().kind, path, there.error().message + "; choose another name");
        if (!file_ || there->id() != file_->id()) {
            return fail(
                ErrorKind::invalid, path,
                "holds another session, or this one as another program saved it; choose another name");
        }
    }
    auto writer = container::SectionWriter::create(path, model_->container().manifest().fingerprint);
    if (!writer) return pass(writer);
    if (const auto ok = write_sections(*writer, options); !ok) return pass(ok);
    if (const auto ok = writer->commit(); !ok) return pass(ok);
    auto file = container::SectionFile::open(path);
    if (!file) return pass(file);
    file_ = std::make_shared<container::SectionFile>(std::move(*file));
    unchanged_ = position();
    checkpoints_.set_stored(file_);
    return SaveReport{file_->file_bytes(), writer->bytes_written()};
}

Result<void> Session::write_sections(container::SectionWriter& writer, const SaveOptions& options) const {
    SessionAbout about;
    about.model = model_->container().directory();
    about.saved_at =
        std::chrono::duration_cast<std::chrono::seconds>(std::chrono::system_clock::now().time_since_epoch())
            .count();
    about.position = position();
    about.has_logits = logits_ != nullptr;
    about.turns = history_.turns;
    about.seeds = history_.seeds;
    about.sampler = sampler_;
    for (const Checkpoint& kept : checkpoints_.kept())
        about.checkpoints.push_back({kept.position, kept.at_turn, kept.has_logits});
    const std::string text = about_text(about);
    constexpr auto kPacked = container::SectionCodec::zstd;
    const auto bytes = [](const auto& values) { return std::as_bytes(std::span(values)); };
    if (const auto ok = writer.add(section_name(SectionKind::about), 0, kPacked, bytes(text)); !ok) return ok;
    auto ok = writer.add(section_name(SectionKind::tokens), 0, kPacked, bytes(history_.tokens));
    if (ok) ok = writer.add(section_name(SectionKind::chunked), 0, kPacked, bytes(history_.chunked));
    if (ok) ok = write_recurrent(writer, kPresentState, state_.recurrent(), logits(), options);
    if (ok) ok = write_latents(writer, options);
    if (ok) ok = write_checkpoints(writer, options);
    return ok;
}

Result<void> Session::write_recurrent(container::SectionWriter& writer, int64_t copy,
                                      std::span<const float> recurrent, std::span<const float> logits,
                                      const SaveOptions& options) const {
    const int64_t layers = model_->config().kda_layer_count();
    for (int64_t layer = 0; layer < layers; layer++) {
        const size_t floats = recurrent.size() / static_cast<size_t>(layers);
        const auto ok =
            add_floats(writer, section_name(SectionKind::recurrent, layer, copy), options.recurrent,
                       recurrent.subspan(static_cast<size_t>(layer) * floats, floats));
        if (!ok) return ok;
    }
    if (logits.empty()) return {};
    return add_floats(writer, section_name(SectionKind::logits, 0, copy), StateFormat::f32, logits);
}

Result<void> Session::write_latents(container::SectionWriter& writer, const SaveOptions& options) const {
    const ModelConfig& c = model_->config();
    for (size_t layer = 0; layer < state_.mla.size(); layer++) {
        const MlaState& mla = state_.mla[layer];
        if (mla.latent == nullptr) continue;
        for (int64_t first = 0; first < position(); first += kLatentBlock) {
            const auto name = section_name(SectionKind::latents, static_cast<int64_t>(layer), first);
            const int64_t length = block_length(first, position());
            const container::SectionEntry* old = file_ ? carried(*file_, name, options.latents) : nullptr;
            if (old != nullptr && length == kLatentBlock && first + length <= unchanged_) {
                if (const auto ok = writer.carry(*file_, *old, name); !ok) return ok;
                continue;
            }
            const auto rows = [&](const float* values, int64_t width) {
                return std::span(values + first * width, static_cast<size_t>(length * width));
            };
            const auto ok = add_floats(writer, name, options.latents, rows(mla.latent, c.kv_lora_rank),
                                       rows(mla.rope, c.qk_rope_head_dim));
            if (!ok) return ok;
        }
    }
    return {};
}

Result<void> Session::write_checkpoints(container::SectionWriter& writer, const SaveOptions& options) const {
    const int64_t layers = model_->config().kda_layer_count();
    uint32_t index = 0;
    for (const Checkpoint& kept : checkpoints_.kept()) {
        const int64_t copy = checkpoint_copy(index++);
        const int64_t old_copy = kept.stored ? checkpoint_copy(kept.stored->index) : copy;
        const bool as_asked =
            kept.stored && carried(*kept.stored->file, section_name(SectionKind::recurrent, 0, old_copy),
                                   options.recurrent) != nullptr;
        // Exact ones in memory are not given up for what a file of another format has of them.
        if (kept.slot >= 0 && !as_asked) {
            const auto ok = write_recurrent(writer, copy, checkpoints_.recurrent(kept),
                                            checkpoints_.logits(kept), options);
            if (!ok) return ok;
            continue;
        }
        // One that lies in a file is carried in that file's format, whatever is asked for now.
        const container::SectionFile& from = *kept.stored->file;
        const auto carry = [&](SectionKind kind, int64_t part) -> Result<void> {
            const container::SectionEntry* entry = from.find(section_name(kind, part, old_copy));
            if (entry == nullptr) return {};  // whoever reads the new file will miss it too
            return writer.carry(from, *entry, section_name(kind, part, copy));
        };
        for (int64_t layer = 0; layer < layers; layer++) {
            if (const auto ok = carry(SectionKind::recurrent, layer); !ok) return ok;
        }
        if (const auto ok = carry(SectionKind::logits, 0); !ok) return ok;
    }
    return {};
}

Result<void> Session::load(const SavedSession& saved, std::optional<int64_t> position) {
    clear();
    const auto ok = read_sections(saved, position.value_or(saved.position()));
    if (!ok) clear();
    return ok;
}

Result<void> Session::read_sections(const SavedSession& saved, int64_t position) {
    const ModelConfig& c = model_->config();
    const container::SectionFile& file = saved.file();
    const std::string& fingerprint = model_->container().manifest().fingerprint;
    if (file.fingerprint() != fingerprint) {
        return fail(
            ErrorKind::invalid, file.path(),
            fmt::format("was saved with another model, or this one converted otherwise ({}, this is {}); "
                        "it ran from {}",
                        file.fingerprint(), fingerprint, saved.about().model));
    }
    const auto& tokens = saved.history().tokens;
    const auto outside = [&](int32_t id) { return id < 0 || id >= c.vocab_size; };
    if (std::any_of(tokens.begin(), tokens.end(), outside)) {
        return fail(ErrorKind::corrupt, file.path(),
                    "has tokens outside the vocabulary; the session file is damaged");
    }
    if (saved.position() > state_.context_length) {
        return fail(ErrorKind::capacity, file.path(),
                    fmt::format("has {} tokens, more than the context of {}; choose a larger --ctx",
                                saved.position(), state_.context_length));
    }
    const auto copy = state_at(saved, position);
    if (!copy) {
        return fail(ErrorKind::invalid, file.path(), fmt::format("keeps no state at position {}", position));
    }
    auto ok = read_recurrent(file, copy->number, c.kda_layer_count(), state_.recurrent());
    if (!ok) return ok;
    if (copy->has_logits) {
        const std::span logits(workspace_.logits, static_cast<size_t>(c.vocab_size));
        ok = read_floats(file, section_name(SectionKind::logits, 0, copy->number), logits);
        if (!ok) return ok;
        logits_ = workspace_.logits;
    }
    for (size_t layer = 0; layer < state_.mla.size(); layer++) {
        const MlaState& mla = state_.mla[layer];
        for (int64_t first = 0; mla.latent != nullptr && first < position; first += kLatentBlock) {
            const auto rows = [&](float* values, int64_t width) {
                const int64_t length = block_length(first, saved.position());
                return std::span(values + first * width, static_cast<size_t>(length * width));
            };
            ok = read_floats(file, section_name(SectionKind::latents, static_cast<int64_t>(layer), first),
                             rows(mla.latent, c.kv_lora_rank), rows(mla.rope, c.qk_rope_head_dim));
            if (!ok) return ok;
        }
    }
    history_ = saved.history();
    history_.truncate(position);
    state_.position = position;
    sampler_ = saved.about().sampler;
    uint32_t index = 0;
    for (const SavedCheckpoint& kept : saved.about().checkpoints) {
        const StoredCheckpoint stored{saved.shared_file(), index++};
        if (kept.position <= position) {
            checkpoints_.adopt({kept.position, kept.at_turn, kept.has_logits, -1, stored});
        }
    }
    file_ = saved.shared_file();
    unchanged_ = position;
    return {};
}

}  // namespace waste::engine
