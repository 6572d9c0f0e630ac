#include "tools/line_reader.h"

#include <histedit.h>
#include <langinfo.h>
#include <poll.h>
#include <unistd.h>

#include <cerrno>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>
#include <utility>

#include "tools/terminal.h"

namespace waste::tools {
namespace {

enum class Wait : uint8_t { ready, interrupted };

/// Waits for stdin. Unlike read(), poll() is never begun again after a signal.
Wait wait_for_input() {
    pollfd input{STDIN_FILENO, POLLIN, 0};
    while (true) {
        if (interrupted()) return Wait::interrupted;
        if (poll(&input, 1, -1) >= 0 || errno != EINTR) return Wait::ready;
    }
}

/// Lines of a pipe or a file.
class PlainLines : public LineReader {
  public:
    Line read(const std::string&, const std::string&) override {
        while (true) {
            const size_t end = held_.find('\n');
            if (end != std::string::npos) {
                Line line{Line::Status::line, held_.substr(0, end)};
                held_.erase(0, end + 1);
                if (line.text.ends_with('\r')) line.text.pop_back();
                return line;
            }
            if (wait_for_input() == Wait::interrupted) return {Line::Status::interrupted};
            char buffer[4096];
            const ssize_t n = ::read(STDIN_FILENO, buffer, sizeof buffer);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) {
                // A last line without an end is a line.
                if (held_.empty()) return {Line::Status::end};
                return {Line::Status::line, std::exchange(held_, {})};
            }
            held_.append(buffer, static_cast<size_t>(n));
        }
    }
    void remember(const std::string&) override {}
    bool can_edit() const override { return false; }

  private:
    std::string held_;
};

/// A terminal, through libedit.
class EditedLines : public LineReader {
  public:
    EditedLines() {
        // Characters are bytes without a UTF-8 locale; C.UTF-8 is always there.
        setlocale(LC_CTYPE, "");
        if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0) setlocale(LC_CTYPE, "C.UTF-8");
        editor_ = el_init("waste", stdin, stdout, stderr);
        history_ = history_init();
        if (!editor_ || !history_) return;
        HistEvent event;
        history(history_, &event, H_SETSIZE, kHistoryLines);
        history(history_, &event, H_SETUNIQUE, 1);
        el_set(editor_, EL_CLIENTDATA, this);
        el_set(editor_, EL_EDITOR, "emacs");
        el_set(editor_, EL_PROMPT, prompt_of);
        el_set(editor_, EL_HIST, history, history_);
        el_set(editor_, EL_GETCFN, read_character);
        el_source(editor_, nullptr);  // ~/.editrc, as in every program with libedit
    }
    ~EditedLines() override {
        if (editor_) el_end(editor_);
        if (history_) history_end(history_);
    }
    EditedLines(const EditedLines&) = delete;
    EditedLines& operator=(const EditedLines&) = delete;

    bool works() const { return editor_ && history_; }

    Line read(const std::string& prompt, const std::string& prefill) override {
        prompt_ = prompt;
        // What is pushed is read as if it were typed.
        if (!prefill.empty()) el_push(editor_, printable(prefill).c_str());
        int count = 0;
        const char* text = el_gets(editor_, &count);
        if (interrupted()) {
            put_out("\n");
            fflush(stdout);
            return {Line::Status::interrupted};
        }
        if (!text || count <= 0) return {Line::Status::end};
        Line line{Line::Status::line, std::string(text, static_cast<size_t>(count))};
        if (line.text.ends_with('\n')) line.text.pop_back();
        return line;
    }

    void remember(const std::string& line) override {
        HistEvent event;
        if (!line.empty()) history(history_, &event, H_ENTER, line.c_str());
    }
    bool can_edit() const override { return true; }

  private:
    static constexpr int kHistoryLines = 1000;

    static char* prompt_of(EditLine* editor) {
        void* self = nullptr;
        el_get(editor, EL_CLIENTDATA, &self);
        return static_cast<EditedLines*>(self)->prompt_.data();
    }

    /// 1: a character, 0: the end, -1: an error or Ctrl-C.
    static int read_character(EditLine*, wchar_t* character) {
        std::mbstate_t state{};
        while (true) {
            if (wait_for_input() == Wait::interrupted) return -1;
            char byte = 0;
            const ssize_t n = ::read(STDIN_FILENO, &byte, 1);
            if (n < 0 && errno == EINTR) continue;
            if (n <= 0) return static_cast<int>(n);
            const size_t used = std::mbrtowc(character, &byte, 1, &state);
            if (used == static_cast<size_t>(-2)) continue;
            if (used == static_cast<size_t>(-1)) {
                state = {};
                continue;  // no character: as if it had not been typed
            }
            return 1;
        }
    }

    EditLine* editor_ = nullptr;
    History* history_ = nullptr;
    std::string prompt_;
};

}  // namespace

std::unique_ptr<LineReader> make_line_reader() {
    if (isatty(STDIN_FILENO) == 1 && stdout_is_terminal()) {
        auto edited = std::make_unique<EditedLines>();
        if (edited->works()) return edited;
    }
    return std::make_unique<PlainLines>();
}

}  // namespace waste::tools
