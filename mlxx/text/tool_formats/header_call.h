#pragma once

#include <memory>
#include <string>

#include "mlxx/text/tool_formats/section_reader.h"

namespace mlxx::text {

// Calls as a name, a marker and a JSON value:
// <|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{}<|tool_call_end|>
struct HeaderShape {
  std::string open_call;      // ""; the name follows at once
  std::string name_end;       // "[ARGS]"
  std::string id_begin;       // "[CALL_ID]", between name and name_end; or ""
  std::string close_call;     // "": where the JSON value ends
  std::string close_section;  // "": none
  bool json_list = false;     // or a JSON list of objects
  bool numbered = false;      // names are functions.NAME:NUMBER
};

std::unique_ptr<SectionReader> read_header_calls(
    const HeaderShape& shape,
    std::string_view opening);

}  // namespace mlxx::text
