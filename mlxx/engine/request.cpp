#include "mlxx/engine/request.h"

namespace mlxx::engine {

int64_t choice_seed(int64_t seed, int choice) {
  return static_cast<int64_t>(
      (static_cast<uint64_t>(seed) + static_cast<uint64_t>(choice)) &
      0x7fffffffffffffffu);
}

std::string_view to_string(FinishReason reason) {
  switch (reason) {
    case FinishReason::stop:
      return "stop";
    case FinishReason::length:
      return "length";
    case FinishReason::cancelled:
      return "cancelled";
    case FinishReason::error:
      return "error";
  }
  return "error";
}

}  // namespace mlxx::engine
