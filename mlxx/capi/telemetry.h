#pragma once

#include "mlxx/capi/function_table.h"

namespace mlxx::capi {

// Those of mlxx.h with the prefix mlxx_.
mlxx_status memory_get(mlxx_memory* memory, ErrorText error);
mlxx_status memory_reset_peak(ErrorText error);
mlxx_status memory_clear_cache(ErrorText error);

}  // namespace mlxx::capi
