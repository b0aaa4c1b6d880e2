#pragma once

#include <exception>
#include <string>
#include <string_view>

namespace mlxx::apps {

// The reader of our output went away (`mlxx ... | head`). Ends the program
// quietly with exit code 0.
class ClosedOutput : public std::exception {
 public:
  const char* what() const noexcept override {
    return "the reader of the output is gone";
  }
};

enum class Stream { out, err };

bool is_terminal(Stream stream);
// True on a terminal that knows colours, unless NO_COLOR is set. Colour only
// ever repeats what the words say.
bool use_color(Stream stream);
// Columns of the terminal, or 80.
int terminal_width(Stream stream);

enum class Color { bold, dim, red, green, yellow, cyan };
// `text` in that colour if use_color(stream), else as it is.
std::string colored(Stream stream, Color color, std::string_view text);

// What a model or a file says, made safe for the terminal that `stream` is: a
// control character could move the cursor or send keys, so all but newline,
// tab and carriage return become visible ones. Unchanged if it is no terminal.
// `text` is valid UTF-8 and ends at the end of a character.
std::string for_display(Stream stream, std::string_view text);
// The same for a terminal, whatever the streams are.
std::string visible_controls(std::string_view text);

// Writes to stdout and flushes, so that the reader sees it at once. Throws
// ClosedOutput, or internal if the output cannot be written (a full disk).
void print(std::string_view text);

// Writes to stderr. Failures are ignored: there is nowhere left to say so.
void print_error(std::string_view text);

// "mlxx: error: ..." as one line on stderr.
void print_error_line(std::string_view message);

}  // namespace mlxx::apps
