#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/base/json.h"

namespace mlxx::text {

// A piece of one tool call. The first piece of a call brings its name and no
// arguments; the arguments of its pieces concatenated are a JSON text, or what
// the model wrote where that is no valid JSON.
struct ToolCallPiece {
  int index = 0;  // 0, 1, ... in the order of the answer
  std::string name;
  std::string arguments;
};

// What a piece of an answer's text turned out to be. Any may be empty.
struct AnswerPiece {
  std::string reasoning;
  std::string content;
  std::vector<ToolCallPiece> calls;
};

// Divides an answer into reasoning, content and tool calls as it arrives. The
// result does not depend on how the text was cut; held back is only what may
// still become markup.
class AnswerParser {
 public:
  virtual ~AnswerParser() = default;
  virtual AnswerPiece step(std::string_view text) = 0;
  // The rest, once no more text comes. A call that is not complete by then is
  // given as far as it came.
  virtual AnswerPiece flush() = 0;
};

}  // namespace mlxx::text
