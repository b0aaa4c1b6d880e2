#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"

#include "mlxx/core/device.h"
#include "mlxx/kernels/quantized_matmul/device_matmul.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {

namespace {

// mx::quantized_matmul knows no global scale, which all outputs share.
mx::array apply_global_scale(const mx::array& y, const mx::array& scale) {
  constexpr float kLargest = 448 * 6;  // of e4m3 and of e2m1
  mx::array factor = mx::multiply(scale, mx::array(1 / kLargest));
  mx::array exact = mx::multiply(mx::astype(y, mx::float32), factor);
  return mx::astype(exact, y.dtype());
}

}  // namespace

mx::array quantized_matmul(const mx::array& x, const Parameter& matrix) {
  if (matrix.packed()) {
    return matrix.packed()->matmul(x);
  }
  const auto& quantization = *matrix.quantization();
  const auto& arrays = matrix.arrays();
  bool chooses = matrix.product() && backend() == Backend::cuda;
  if (chooses && !arrays.global_scale) {
    return device_quantized_matmul(x, arrays, quantization);
  }
  mx::array y = mx::quantized_matmul(
      x,
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      true,
      quantization.group_size,
      quantization.bits,
      quantization.mode);
  return arrays.global_scale ? apply_global_scale(y, *arrays.global_scale) : y;
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
      quantization.mode,
      arrays.global_scale);
}

std::shared_ptr<const PackedWeights> pack_quantized(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const Selection& selection) {
  if (selection.fallback || backend() != Backend::cpu || arrays.global_scale ||
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
