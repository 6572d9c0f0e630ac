// Talking to a person: messages, sizes, progress, interruption. Text goes to stdout only where it is the
// result.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

#include "container/result.h"

namespace waste::tools {

/// Results go to stdout, everything said about them to stderr. A stdout that cannot be written is reported
/// once, at the end, by finish_output(); a stderr that cannot has nobody to tell.
void put_out(std::string_view text);
void put_err(std::string_view text);
/// Flushes stdout; false, after a warning, if any of it was lost.
bool finish_output();

/// "waste: " and one line on stderr.
void warn(const std::string& message);

/// Prints the error and returns the exit code it deserves.
int report(const Error& error);

/// Makes untrusted text safe to print: control characters become visible escapes.
std::string printable(std::string_view text);

/// A model's text for a terminal, which it must not steer: as printable(), but its lines and tabs are its own. Unchanged
/// where it does not go to one.
std::string shown_on(bool terminal, std::string_view text);

std::string bytes_text(uint64_t bytes);     ///< "17.5 MB", decimal
std::string duration_text(double seconds);  ///< "3 h 12 min", "45 s"
bool stderr_is_terminal();
bool stdout_is_terminal();

/// Long work on stderr: one line rewritten in place on a terminal, a line every ten seconds elsewhere.
class ProgressLine {
  public:
    explicit ProgressLine(std::string unit) : unit_(std::move(unit)) {}
    ~ProgressLine() { finish(); }

    /// `skipped` of `done` cost nothing and does not count towards the rate.
    void update(uint64_t done, uint64_t total, uint64_t skipped, std::string_view what);
    /// Ends the line, so that what follows starts on a fresh one.
    void finish();

  private:
    std::string unit_;  ///< of the counts: "B" prints sizes
    std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
    std::chrono::steady_clock::time_point last_{};
    bool open_ = false;
};

/// From the first call on, Ctrl-C (SIGINT) and SIGTERM set a flag instead of ending the process; a second one
/// ends it at once.
void catch_interrupts();
bool interrupted();
/// Whether the signal was SIGTERM.
bool asked_to_end();
/// Forgets an interruption that was dealt with; the next is caught again.
void clear_interrupt();

}  // namespace waste::tools
