#pragma once

#include <string>
#include <string_view>

#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

// Follows one JSON value byte by byte, leniently: only strings and brackets
// are told apart.
class JsonScan {
 public:
  enum class Step { inside, ends_after, ended_before };
  Step feed(char c);
  bool in_string() const {
    return in_string_;
  }
  bool begun() const {
    return begun_;
  }

 private:
  bool begun_ = false;
  bool in_string_ = false;
  bool escaped_ = false;
  int depth_ = 0;
};

struct JsonCallShape {
  std::string opening = {};  // "<tool_call>", to tell an unclosed string's end
  std::string close = {};    // "</tool_call>"; "": the JSON's own end
  // Objects may follow one another, with white space and these between.
  std::string separators = {};
  // Without a marker in front, an object is a call only if it has arguments
  // too or names one of the tools.
  bool bare = false;
  const OrderedJson* tools = nullptr;  // of `bare`
  // Text that was read before: "{" of a bare call.
  std::string before = {};
};

// {"name": ..., "arguments"/"parameters": ...}, also inside {"function": ...},
// or a list of those.
std::unique_ptr<SectionReader> read_json_calls(JsonCallShape shape);

// The end of a call whose close marker shows up inside of a string that never
// ends: it is one if the text ends behind it or another call opens.
enum class Closes { no, yes, unknown };
Closes closes_here(
    std::string_view text,
    std::string_view close,
    std::string_view opening,
    bool in_string,
    bool last);

}  // namespace mlxx::text
