#pragma once

#include <string>
#include <string_view>

#include "mlxx/base/json.h"

namespace mlxx::text {

// The function of that name in a list of tools, null if there is none.
// Entries of another shape are passed over.
const OrderedJson* declared_tool(
    const OrderedJson* tools,
    std::string_view name);
// Its "parameters", null if it has none.
const OrderedJson* declared_parameters(
    const OrderedJson* tools,
    std::string_view name);

// The text of an argument that was written without quotes, as JSON of a type
// that the parameter's schema allows; a string where nothing else fits.
// Undeclared parameters become what they look like.
std::string typed_argument(
    const OrderedJson* parameters,
    std::string_view name,
    std::string_view text);
// Whether only a string fits: its text is not to be trimmed.
bool takes_strings_only(const OrderedJson* parameters, std::string_view name);

}  // namespace mlxx::text
