#pragma once

#include <optional>
#include <string>

#include "mlxx/base/json.h"
#include "mlxx/text/tool_formats/lark_writer.h"

namespace mlxx::text {

// The name of a rule for strings of the schema as they are, without quotes or
// escapes, and `close` behind them. Nothing if the schema allows no strings;
// where it allows others too, their text is a string as well.
// invalid_request naming `place` for what can't be enforced.
std::optional<std::string> string_up_to(
    LarkWriter& lark,
    const OrderedJson& root,
    const OrderedJson& schema,
    const std::string& close,
    const std::string& place);

}  // namespace mlxx::text
