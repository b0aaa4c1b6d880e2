#pragma once

#include <string>
#include <string_view>

namespace mlxx::hub {

// JSON as Python writes it, with the words Infinity, -Infinity and NaN for
// numbers, as JSON: each such word outside of strings becomes
// {"__float__": "Infinity"} and so on, which is how transformers 5 spells it.
std::string without_python_floats(std::string_view json);

}  // namespace mlxx::hub
