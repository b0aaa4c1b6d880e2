#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace mlxx::text {

// A Python literal (string, number, True, None, list, tuple, dict; true, false
// and null too) as JSON text. Nothing if it is something else.
std::optional<std::string> python_literal_to_json(std::string_view text);

// A value as the Gemma models write it: {key:value,list:[1,2]} with strings
// between `quote`s. Unquoted words become strings.
std::optional<std::string> bare_object_to_json(
    std::string_view text,
    std::string_view quote);

}  // namespace mlxx::text
