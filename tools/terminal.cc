#include "tools/terminal.h"

#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "tools/command.h"

namespace waste::tools {
namespace {

std::atomic<int> caught_signal{0};
static_assert(std::atomic<int>::is_always_lock_free, "set from a signal handler");

void on_signal(int signal_number) {
    caught_signal = signal_number;
    signal(signal_number, SIG_DFL);
}

std::string amount(uint64_t count, const std::string& unit) {
    return unit == "B" ? bytes_text(count) : fmt::format("{} {}", count, unit);
}

}  // namespace

void put_out(std::string_view text) {
    fwrite(text.data(), 1, text.size(), stdout);
}

void put_err(std::string_view text) {
    fwrite(text.data(), 1, text.size(), stderr);
}

bool finish_output() {
    if (fflush(stdout) == 0 && ferror(stdout) == 0) return true;
    warn(fmt::format("stdout: cannot be written: {}", std::strerror(errno)));
    return false;
}

void warn(const std::string& message) {
    put_err(fmt::format("waste: {}\n", printable(message)));
}

int report(const Error& error) {
    warn(error.text());
    if (error.kind == ErrorKind::interrupted) return kInterrupted;
    // An option that asks for something impossible is wrong usage, wherever it was noticed.
    return error.place.starts_with("--") || error.place == "WASTE_TIER" ? kUsage : kFailed;
}

std::string printable(std::string_view text) {
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        const auto byte = static_cast<unsigned char>(text[i]);
        const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
        if (byte == 0xc2 && next >= 0x80 && next < 0xa0) {  // U+0080..U+009F steer terminals too
            out += fmt::format("\\u{:04x}", next);
            i++;
        } else if (byte < 0x20 || byte == 0x7f) {
            out += fmt::format("\\x{:02x}", byte);
        } else {
            out += text[i];
        }
    }
    return out;
}

std::string shown_on(bool terminal, std::string_view text) {
    if (!terminal) return std::string(text);
    std::string out;
    for (size_t begin = 0; begin < text.size();) {
        const size_t end = std::min(text.find_first_of("\n\t", begin), text.size());
        out += printable(text.substr(begin, end - begin));
        if (end < text.size()) out += text[end];
        begin = end + 1;
    }
    return out;
}

std::string bytes_text(uint64_t bytes) {
    constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
    auto value = static_cast<double>(bytes);
    size_t unit = 0;
    while (value >= 999.5 && unit + 1 < std::size(kUnits)) {
        value /= 1000;
        unit++;
    }
    if (unit == 0) return fmt::format("{} B", bytes);
    return value < 99.95 ? fmt::format("{:.1f} {}", value, kUnits[unit])
                         : fmt::format("{:.0f} {}", value, kUnits[unit]);
}

std::string duration_text(double seconds) {
    const int64_t whole = std::llround(seconds);
    if (whole < 60) return fmt::format("{} s", whole);
    if (whole < 3600) return fmt::format("{} min {} s", whole / 60, whole % 60);
    return fmt::format("{} h {} min", whole / 3600, whole % 3600 / 60);
}

bool stderr_is_terminal() {
    return isatty(STDERR_FILENO) == 1;
}
bool stdout_is_terminal() {
    return isatty(STDOUT_FILENO) == 1;
}

void ProgressLine::update(uint64_t done, uint64_t total, uint64_t skipped, std::string_view what) {
    const auto now = std::chrono::steady_clock::now();
    const bool terminal = stderr_is_terminal();
    const auto interval = terminal ? std::chrono::milliseconds(200) : std::chrono::milliseconds(10000);
    if (done < total && now - (open_ ? last_ : start_) < interval) return;
    last_ = now;
    open_ = true;
    const double seconds = std::chrono::duration<double>(now - start_).count();
    const double rate = seconds > 0 ? static_cast<double>(done - skipped) / seconds : 0;
    const double percent = total > 0 ? 100.0 * static_cast<double>(done) / static_cast<double>(total) : 100.0;
    std::string line = fmt::format("{:5.1f} %  {} of {}  {}/s", percent, amount(done, unit_),
                                   amount(total, unit_), amount(static_cast<uint64_t>(rate), unit_));
    if (rate > 0 && done < total)
        line += "  " + duration_text(static_cast<double>(total - done) / rate) + " left";
    line += "  " + printable(what);
    if (terminal) {
        put_err(fmt::format("\r{:<100.100}", line));
    } else {
        put_err(fmt::format("{}\n", line));
    }
    std::fflush(stderr);
}

void ProgressLine::finish() {
    if (open_ && stderr_is_terminal()) put_err("\n");
    open_ = false;
}

void catch_interrupts() {
    signal(SIGINT, on_signal);
    signal(SIGTERM, on_signal);
}

bool interrupted() {
    return caught_signal != 0;
}

bool asked_to_end() {
    return caught_signal == SIGTERM;
}

void clear_interrupt() {
    caught_signal = 0;
    catch_interrupts();
}

}  // namespace waste::tools
