#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

#include "mlxx/core/device.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {

mx::array quantized_matmul(const mx::array& x, const Parameter& matrix) {
  if (matrix.packed()) {
    return matrix.packed()->matmul(x);
  }
  const auto& quantization = *matrix.quantization();
  const auto& arrays = matrix.arrays();
  return mx::quantized_matmul(
      x,
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      true,
      quantization.group_size,
      quantization.bits,
      quantization.mode);
}

mx::array dequantize_rows(const Parameter& matrix, const mx::array& ids) {
  if (matrix.packed()) {
    return matrix.packed()->take_rows(ids);
  }
  const auto& quantization = *matrix.quantization();
  const auto& arrays = matrix.arrays();
  return mx::dequantize(
      mx::take(arrays.weight, ids, 0),
      mx::take(*arrays.scales, ids, 0),
      arrays.biases ? std::optional(mx::take(*arrays.biases, ids, 0))
                    : std::nullopt,
      quantization.group_size,
      quantization.bits,
      quantization.mode);
}

std::shared_ptr<const PackedWeights> pack_quantized(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const Selection& selection) {
  if (selection.fallback || backend() != Backend::cpu ||
      !PanelMatrix::can_pack(arrays, quantization)) {
    return nullptr;
  }
  return std::make_shared<PackedPanels>(
      std::make_shared<const PanelMatrix>(arrays, quantization, selection));
}

std::shared_ptr<const PackedWeights> pack_rows(
    const QuantizedRows& rows,
    const Selection& selection) {
  if (selection.fallback || backend() != Backend::cpu ||
      rows.form().rows > INT32_MAX || rows.form().columns > INT32_MAX) {
    return nullptr;
  }
  auto matrix = PanelMatrix::from_rows(rows, selection);
  return matrix ? std::make_shared<PackedPanels>(std::move(matrix)) : nullptr;
}

std::shared_ptr<const PackedWeights> pack_dense(
    const mx::array& dense,
    const Selection& selection) {
  if (selection.fallback || backend() != Backend::cpu ||
      !PanelMatrix::can_pack(dense)) {
    return nullptr;
  }
  return std::make_shared<PackedPanels>(
      std::make_shared<const PanelMatrix>(dense, selection));
}

}  // namespace mlxx::kernels
