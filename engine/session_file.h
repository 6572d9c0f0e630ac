// Sessions in files: what a file says of itself, and options for writing one. Session::save() and load() do it.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "container/result.h"
#include "container/section_file.h"
#include "engine/history.h"
#include "engine/session_about.h"
#include "engine/session_sections.h"

namespace waste::engine {

struct SaveOptions {
    /// f32 is exact. What a file of another format holds changes what the model says afterwards (docs/sessions.md has
    /// figures).
    StateFormat recurrent = StateFormat::f32;
    StateFormat latents = StateFormat::f32;
    bool replace = false;  ///< also a file that is not this session's
};

struct SaveReport {
    uint64_t file_bytes;
    uint64_t written_bytes;  ///< the rest was taken over from the file before
};

/// A session file that was opened: everything but the numbers, which Session::load() reads. Nothing in it is trusted
/// further than it was checked: tokens may lie outside a vocabulary.
class SavedSession {
  public:
    static Result<SavedSession> open(const std::string& path);

    const container::SectionFile& file() const { return *file_; }
    const std::shared_ptr<const container::SectionFile>& shared_file() const { return file_; }
    const SessionAbout& about() const { return about_; }
    /// Tokens and all that belongs to them.
    const History& history() const { return history_; }
    int64_t position() const { return history_.position(); }

    /// Reads everything and compares checksums.
    Result<void> verify() const;

  private:
    Result<void> read_about();
    Result<void> read_tokens();

    std::shared_ptr<const container::SectionFile> file_;
    SessionAbout about_;
    History history_;
};

}  // namespace waste::engine
