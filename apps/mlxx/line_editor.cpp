#include "apps/mlxx/line_editor.h"

#include <cerrno>
#include <climits>
#include <clocale>
#include <cstdio>
#include <cstring>
#include <cwchar>

#include <histedit.h>
#include <langinfo.h>
#include <unistd.h>

#include "apps/mlxx/console.h"
#include "apps/mlxx/interrupt.h"
#include "mlxx/base/error.h"

namespace mlxx::apps {

namespace {

constexpr int kHistoryLines = 1000;
constexpr size_t kMaxLineBytes = size_t{16} << 20;

// The editor counts columns by LC_CTYPE. Text is UTF-8 whatever the locale.
void use_utf8_locale() {
  std::setlocale(LC_CTYPE, "");
  if (std::strcmp(nl_langinfo(CODESET), "UTF-8") != 0 &&
      !std::setlocale(LC_CTYPE, "C.UTF-8")) {
    std::setlocale(LC_CTYPE, "en_US.UTF-8");
  }
}

}  // namespace

struct LineEditor::Terminal {
  std::unique_ptr<EditLine, decltype(&el_end)> editor{nullptr, el_end};
  std::unique_ptr<History, decltype(&history_end)> history{
      nullptr,
      history_end};
  std::string prompt;
  bool interrupted = false;

  static Terminal* of(EditLine* editor) {
    Terminal* self = nullptr;
    el_get(editor, EL_CLIENTDATA, &self);
    return self;
  }

  // The editor's own reader goes on after a signal. Returns characters read.
  static int read_character(EditLine* editor, wchar_t* character) {
    char bytes[MB_LEN_MAX];
    std::mbstate_t state{};
    for (size_t length = 0; length < sizeof(bytes); ++length) {
      if (!wait_for_input(STDIN_FILENO)) {
        of(editor)->interrupted = true;
        return -1;
      }
      ssize_t count = read(STDIN_FILENO, bytes + length, 1);
      if (count <= 0) {
        return static_cast<int>(count);
      }
      size_t used = std::mbrtowc(character, bytes + length, 1, &state);
      if (used == static_cast<size_t>(-1)) {
        // No character; the replacement keeps the line usable.
        *character = L'\uFFFD';
        return 1;
      }
      if (used != static_cast<size_t>(-2)) {
        return 1;
      }
    }
    return 0;
  }

  static const char* show_prompt(EditLine* editor) {
    return of(editor)->prompt.c_str();
  }
};

LineEditor::LineEditor() {
  // What is typed shows on the terminal even if the answers go to a file.
  FILE* output = is_terminal(Stream::out) ? stdout : stderr;
  if (isatty(STDIN_FILENO) != 1 || isatty(fileno(output)) != 1) {
    return;
  }
  use_utf8_locale();
  auto terminal = std::make_unique<Terminal>();
  terminal->editor.reset(el_init("mlxx", stdin, output, stderr));
  terminal->history.reset(history_init());
  if (!terminal->editor || !terminal->history) {
    fail(ErrorKind::internal, "terminal", "line editing does not start");
  }
  HistEvent event;
  history(terminal->history.get(), &event, H_SETSIZE, kHistoryLines);
  history(terminal->history.get(), &event, H_SETUNIQUE, 1);
  EditLine* editor = terminal->editor.get();
  el_set(editor, EL_CLIENTDATA, terminal.get());
  el_set(editor, EL_PROMPT, &Terminal::show_prompt);
  el_set(editor, EL_GETCFN, &Terminal::read_character);
  el_set(editor, EL_SIGNAL, 0);
  el_set(editor, EL_EDITOR, "emacs");
  el_set(editor, EL_HIST, history, terminal->history.get());
  el_set(editor, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  // The user's own bindings, if there are some.
  el_source(editor, nullptr);
  terminal_ = std::move(terminal);
}

LineEditor::~LineEditor() = default;

bool LineEditor::is_interactive() const {
  return terminal_ != nullptr;
}

InputLine LineEditor::read_line(const std::string& prompt) {
  if (!terminal_) {
    return read_from_pipe();
  }
  EditLine* editor = terminal_->editor.get();
  terminal_->prompt = prompt;
  terminal_->interrupted = false;
  // Left alone, the editor takes the terminal over only after it has shown the
  // prompt: what is typed in between is echoed twice, and a Ctrl-D is lost.
  el_set(editor, EL_PREP_TERM, 1);
  int length = 0;
  const char* line = el_gets(editor, &length);
  if (!line || length <= 0) {
    if (terminal_->interrupted) {
      el_reset(editor);
      return {LineStatus::interrupted, {}};
    }
    return {LineStatus::end_of_input, {}};
  }
  std::string text(line, static_cast<size_t>(length));
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) {
    text.pop_back();
  }
  if (!text.empty()) {
    HistEvent event;
    history(terminal_->history.get(), &event, H_ENTER, text.c_str());
  }
  return {LineStatus::line, std::move(text)};
}

InputLine LineEditor::read_from_pipe() {
  while (true) {
    auto end = buffer_.find('\n');
    if (end != std::string::npos) {
      std::string line = buffer_.substr(0, end);
      buffer_.erase(0, end + 1);
      if (!line.empty() && line.back() == '\r') {
        line.pop_back();
      }
      return {LineStatus::line, std::move(line)};
    }
    if (buffer_.size() > kMaxLineBytes) {
      fail(
          ErrorKind::invalid_request,
          "stdin",
          "a line is over {} bytes",
          kMaxLineBytes);
    }
    if (!wait_for_input(STDIN_FILENO)) {
      return {LineStatus::interrupted, {}};
    }
    char chunk[1 << 14];
    ssize_t count = read(STDIN_FILENO, chunk, sizeof(chunk));
    if (count > 0) {
      buffer_.append(chunk, static_cast<size_t>(count));
      continue;
    }
    if (count < 0 && errno == EINTR) {
      continue;
    }
    if (count < 0) {
      fail(
          ErrorKind::invalid_request,
          "stdin",
          "cannot be read: {}",
          std::strerror(errno));
    }
    if (buffer_.empty()) {
      return {LineStatus::end_of_input, {}};
    }
    // The last line needs no newline.
    return {LineStatus::line, std::exchange(buffer_, {})};
  }
}

}  // namespace mlxx::apps
