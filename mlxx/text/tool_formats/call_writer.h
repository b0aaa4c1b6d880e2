#pragma once

#include <string>
#include <string_view>

#include "mlxx/text/answer_parser.h"

namespace mlxx::text {

// Writes the calls of an answer into its pieces, numbering them.
class CallWriter {
 public:
  // Where what follows goes; kept until the next call of it.
  void write_to(AnswerPiece& piece) {
    piece_ = &piece;
  }

  // Ends the call before it.
  void begin(std::string_view name);
  // Arguments as the model wrote them.
  void raw(std::string_view text);
  // Arguments one by one; `json` is the text of a value, or the start of one
  // that was cut off.
  void add(std::string_view key, std::string_view json);
  // The end of a complete call: its arguments are at least {}.
  void end();
  // No more comes of a call that was cut off.
  void abandon() {
    open_ = false;
  }

  bool open() const {
    return open_;
  }
  bool has_arguments() const {
    return added_ || raw_;
  }
  int count() const {
    return next_;
  }

 private:
  AnswerPiece* piece_ = nullptr;
  int next_ = 0;
  bool open_ = false;
  bool added_ = false;
  bool raw_ = false;
};

// `text` as a JSON string; bytes from 0x80 on stay as they are.
std::string json_quote(std::string_view text);
// Without the quote at its end, for one that was cut off.
std::string json_quote_open(std::string_view text);

}  // namespace mlxx::text
