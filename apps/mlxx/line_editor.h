#pragma once

#include <memory>
#include <optional>
#include <string>

namespace mlxx::apps {

enum class LineStatus { line, end_of_input, interrupted };

struct InputLine {
  LineStatus status;
  std::string text;  // without the newline
};

// Lines of stdin: edited on a terminal, with a history that lasts as long as
// the object, read as they are from a pipe.
class LineEditor {
 public:
  LineEditor();
  ~LineEditor();
  LineEditor(const LineEditor&) = delete;
  LineEditor& operator=(const LineEditor&) = delete;

  // True if a person types.
  bool is_interactive() const;
  // Shows `prompt` if a person types. Ctrl-C gives `interrupted` if a handler
  // of that signal is installed.
  InputLine read_line(const std::string& prompt);

 private:
  struct Terminal;
  InputLine read_from_pipe();

  std::unique_ptr<Terminal> terminal_;  // null for a pipe
  std::string buffer_;                  // bytes of a pipe past the last line
};

}  // namespace mlxx::apps
