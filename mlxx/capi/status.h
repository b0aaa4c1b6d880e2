#pragma once

#include <exception>
#include <string_view>

#include "mlxx/base/error.h"
#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

mlxx_status status_of(ErrorKind kind);

// Copies as much of `message` as fits, ending at a whole character.
void copy_message(std::string_view message, ErrorText error);

// Status and message of the exception that is being handled.
mlxx_status describe_current_exception(ErrorText error);

}  // namespace mlxx::capi
