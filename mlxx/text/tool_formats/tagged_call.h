#pragma once

#include <memory>
#include <string>

#include "mlxx/base/json.h"
#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

// Calls whose arguments stand between tags, one pair for each parameter.
struct TagShape {
  std::string open_call = {};  // "<function="; "": the section is one call
  std::string name_end = {};   // ">"; "": the name ends before the next tag
  std::string open_parameter = {};  // "<parameter="
  std::string parameter_end = {};   // behind the parameter's name
  std::string open_value = {};  // "<arg_value>"; "": the value follows at once
  std::string close_parameter = {};  // "</parameter>"
  std::string close_call = {};       // "</function>"
  std::string close_section = {};    // "": none
};

// `opening`: what opened the section. Text that starts with a JSON object in
// the place of a name or of parameters is read as JSON.
std::unique_ptr<SectionReader> read_tagged_calls(
    const TagShape& shape,
    std::string_view opening,
    const OrderedJson* tools);

}  // namespace mlxx::text
