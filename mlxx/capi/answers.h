#pragma once

#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

// Those of mlxx.h with the prefix mlxx_.
mlxx_status cancel_open(mlxx_cancel** out, ErrorText error);
mlxx_status cancel_request(mlxx_cancel* cancel, ErrorText error);
mlxx_status cancel_close(mlxx_cancel* cancel, ErrorText error);
mlxx_status generate_text(
    mlxx_model* model,
    const char* prompt,
    const mlxx_generate_options* options,
    mlxx_text_callback callback,
    void* user,
    mlxx_generate_result* result,
    ErrorText error);

}  // namespace mlxx::capi
