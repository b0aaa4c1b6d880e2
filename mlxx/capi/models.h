#pragma once

#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

// Those of mlxx.h with the prefix mlxx_.
mlxx_status model_open(
    const char* name,
    const mlxx_model_options* options,
    mlxx_model** out,
    ErrorText error);
mlxx_status model_close(mlxx_model* model, ErrorText error);
mlxx_status
model_get_info(mlxx_model* model, mlxx_model_info* info, ErrorText error);

}  // namespace mlxx::capi
