#pragma once

#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

// The table that libmlxx-impl exports.
FunctionTable make_function_table();

}  // namespace mlxx::capi
