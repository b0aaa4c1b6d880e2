#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "mlxx/text/answer_parser.h"

namespace mlxx::api {

enum class SegmentKind { reasoning, text, call };

// What happens next to the stretches of an answer, of which one at most is
// open.
struct SegmentStep {
  enum class What { begin, append, end };
  What what = What::append;
  SegmentKind kind = SegmentKind::text;
  std::string text;  // of begin: the function that a call calls
};

// An answer's text as stretches of reasoning, text and calls in their order,
// for protocols that send them one after the other. The steps of one kind in a
// row concatenated do not depend on how the text was cut. Text that is nothing
// but white space is left out.
class AnswerSegments {
 public:
  // Without a parser all is text.
  explicit AnswerSegments(std::unique_ptr<text::AnswerParser> parser);

  std::vector<SegmentStep> step(std::string_view text);
  // The rest; ends what is open.
  std::vector<SegmentStep> flush();

 private:
  using Steps = std::vector<SegmentStep>;

  void take(const text::AnswerPiece& piece, Steps& out);
  void take_call(const text::ToolCallPiece& call, Steps& out);
  void append(SegmentKind kind, std::string_view text, Steps& out);
  void begin(SegmentKind kind, std::string name, Steps& out);
  void end(Steps& out);

  std::unique_ptr<text::AnswerParser> parser_;
  bool open_ = false;
  SegmentKind kind_ = SegmentKind::text;
  int call_ = -1;       // the open one
  std::string spaces_;  // may be the start of a text
};

}  // namespace mlxx::api
