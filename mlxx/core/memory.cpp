#include "mlxx/core/memory.h"

namespace mlxx {

MemoryUse memory_use() {
  return {
      mx::get_active_memory(),
      mx::get_cache_memory(),
      mx::get_peak_memory()};
}

void reset_peak_memory() {
  mx::reset_peak_memory();
}

void clear_cache() {
  mx::clear_cache();
}

}  // namespace mlxx
