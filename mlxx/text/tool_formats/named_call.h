#pragma once

#include <memory>
#include <string>

#include "mlxx/base/json.h"
#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

// Calls with named arguments: [f(a=1, b="x"), g()] or call:f{a:1,b:<|"|>x<|"|>}
struct NamedShape {
  std::string prefix;  // "call:", before each name
  bool list = false;   // "[" around the calls, "," between
  char open = '(';
  char assign = '=';
  char close = ')';
  std::string quote;          // of strings; "": Python's
  std::string close_section;  // "": the list's own end
  std::string method;         // ".call", dropped from the end of a name
};

std::unique_ptr<SectionReader> read_named_calls(
    const NamedShape& shape,
    std::string_view opening,
    const OrderedJson* tools);

}  // namespace mlxx::text
