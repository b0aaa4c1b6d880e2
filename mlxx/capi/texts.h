#pragma once

#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

// Those of mlxx.h with the prefix mlxx_.
mlxx_status tokenize(
    mlxx_model* model,
    const char* text,
    size_t bytes,
    int flags,
    int32_t* tokens,
    size_t capacity,
    size_t* count,
    ErrorText error);
mlxx_status detokenize(
    mlxx_model* model,
    const int32_t* tokens,
    size_t token_count,
    int skip_special,
    char* text,
    size_t capacity,
    size_t* count,
    ErrorText error);
mlxx_status apply_chat_template(
    mlxx_model* model,
    const mlxx_chat* chat,
    char* text,
    size_t capacity,
    size_t* count,
    ErrorText error);

}  // namespace mlxx::capi
