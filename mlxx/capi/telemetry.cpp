#include "mlxx/capi/telemetry.h"

#include "mlxx/capi/argument_checks.h"
#include "mlxx/capi/guarded.h"
#include "mlxx/capi/sized_struct.h"
#include "mlxx/core/memory.h"

namespace mlxx::capi {

// MLX's allocators lock: any thread may ask, also during an answer.

mlxx_status memory_get(mlxx_memory* memory, ErrorText error) {
  return guarded(error, [&] {
    require_pointer(memory, "mlxx_memory_get", "memory");
    check_struct_size(memory->size, "mlxx_memory", sizeof(mlxx_memory));
    const MemoryUse use = memory_use();
    write_struct<mlxx_memory>(
        memory,
        {sizeof(mlxx_memory), use.active, use.cache, use.peak});
    return MLXX_OK;
  });
}

mlxx_status memory_reset_peak(ErrorText error) {
  return guarded(error, [&] {
    reset_peak_memory();
    return MLXX_OK;
  });
}

mlxx_status memory_clear_cache(ErrorText error) {
  return guarded(error, [&] {
    clear_cache();
    return MLXX_OK;
  });
}

}  // namespace mlxx::capi
