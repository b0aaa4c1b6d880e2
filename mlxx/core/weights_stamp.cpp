#include "mlxx/core/weights_stamp.h"

namespace mlxx {
namespace {

// Each of MLX's arrays has an address of its own while it lives.
uint64_t mixed(uint64_t stamp, uint64_t id) {
  constexpr uint64_t kOddConstant = 0x9e3779b97f4a7c15;
  stamp = (stamp ^ id) * kOddConstant;
  return stamp ^ (stamp >> 32);
}

}  // namespace

uint64_t WeightsStamp::operator()() const {
  uint64_t stamp = parameters_.size();
  for (const Parameter* parameter : parameters_) {
    if (!parameter->is_set()) {
      stamp = mixed(stamp, 0);
      continue;
    }
    if (parameter->packed()) {
      stamp =
          mixed(stamp, reinterpret_cast<uintptr_t>(parameter->packed().get()));
      continue;
    }
    const WeightArrays& arrays = parameter->arrays();
    stamp = mixed(stamp, arrays.weight.id());
    stamp = mixed(stamp, arrays.scales ? arrays.scales->id() : 0);
    stamp = mixed(stamp, arrays.biases ? arrays.biases->id() : 0);
    stamp = mixed(stamp, arrays.global_scale ? arrays.global_scale->id() : 0);
  }
  return stamp;
}

}  // namespace mlxx
