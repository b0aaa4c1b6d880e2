#include "mlxx/core/parameters.h"

namespace mlxx {

void Parameter::set(
    WeightArrays arrays,
    std::optional<QuantizationSpec> quantization) {
  arrays_ = std::move(arrays);
  quantization_ = std::move(quantization);
  packed_.reset();
}

// No packed form on this device: the arrays stay.
void Parameter::set_packed(std::shared_ptr<const PackedWeights> packed) {
  if (!packed) {
    return;
  }
  packed_ = std::move(packed);
  arrays_.reset();
}

void Parameter::set_packed(
    std::shared_ptr<const PackedWeights> packed,
    std::optional<QuantizationSpec> quantization) {
  quantization_ = std::move(quantization);
  set_packed(std::move(packed));
}

int64_t Parameter::count() const {
  int64_t count = 1;
  for (auto n : shape_) {
    count *= n;
  }
  return count;
}

size_t Parameter::nbytes() const {
  if (packed_) {
    return packed_->nbytes();
  }
  if (!arrays_) {
    return 0;
  }
  size_t bytes = arrays_->weight.nbytes();
  for (const auto& part : {arrays_->scales, arrays_->biases}) {
    bytes += part ? part->nbytes() : 0;
  }
  return bytes;
}

}  // namespace mlxx
