#include "mlxx/hub/resident_form.h"

#include <algorithm>

#include <fmt/format.h>

namespace mlxx::hub {

namespace {

uint64_t element_count(const TensorInfo& tensor) {
  // Unsigned: sizes come from a file, and one of zero excuses any other.
  uint64_t count = 1;
  for (int64_t size : tensor.shape) {
    count *= static_cast<uint64_t>(size);
  }
  return count;
}

// Types of GGUF whose scales are products, which float16 cannot hold.
bool has_wide_scales(const std::string& type) {
  return type == "Q4_K" || type == "Q5_K" || type == "IQ4_XS";
}

}  // namespace

ResidentForm resident_form(
    const TensorInfo& tensor,
    const std::string& checkpoint_format) {
  uint64_t count = element_count(tensor);
  if (!tensor.quantization) {
    if (tensor.loads_as.empty()) {
      return {tensor.stored, tensor.nbytes};
    }
    return {tensor.loads_as, count * (tensor.loads_as == "F32" ? 4 : 2)};
  }
  const auto& q = *tensor.quantization;
  std::string name =
      fmt::format("{}-bit {} in groups of {}", q.bits, q.mode, q.group_size);
  if (checkpoint_format != "gguf" && tensor.stored.starts_with("U32 ")) {
    return {name, tensor.nbytes};
  }
  auto groups = count / static_cast<uint64_t>(q.group_size);
  uint64_t number = has_wide_scales(tensor.stored) ? 4 : 2;
  uint64_t scales = q.mode == "affine" ? 2 * number * groups : groups;
  return {name, count / 8 * static_cast<uint64_t>(q.bits) + scales};
}

}  // namespace mlxx::hub
