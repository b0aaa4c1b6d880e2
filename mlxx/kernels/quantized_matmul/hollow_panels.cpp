#include "mlxx/kernels/quantized_matmul/hollow_panels.h"

#include "mlxx/core/device.h"
#include "mlxx/kernels/expert_matmul/expert_panels.h"
#include "mlxx/kernels/quantized_matmul/floating_format.h"
#include "mlxx/kernels/quantized_matmul/packed_panels.h"

namespace mlxx::kernels {

namespace {

WeightArrays first_of(const WeightArrays& stack) {
  auto part = [](const mx::array& a) { return mx::take(a, 0, 0); };
  auto optional_part = [&](const std::optional<mx::array>& a) {
    return a ? std::optional(part(*a)) : std::nullopt;
  };
  return {
      part(stack.weight),
      optional_part(stack.scales),
      optional_part(stack.biases)};
}

NumberType number_type(mx::Dtype dtype) {
  return dtype == mx::float16 ? NumberType::float16
      : dtype == mx::bfloat16 ? NumberType::bfloat16
                              : NumberType::float32;
}

// The constructors of PanelMatrix, as far as sizes go.
PanelLayout layout_of(
    const WeightArrays& arrays,
    const std::optional<QuantizationSpec>& quantization,
    bool symmetric) {
  PanelLayout layout{};
  const int64_t width = arrays.weight.shape(1);
  if (!quantization) {
    layout.in = width;
    layout.group_size = kChunk;
    layout.type = number_type(arrays.weight.dtype());
    return layout;
  }
  layout.bits = quantization->bits;
  layout.in = width * 32 / quantization->bits;
  if (auto format = floating_format(*quantization)) {
    layout.group_size = kChunk;
    layout.type = format->scales;
    layout.symmetric = true;
    layout.codes = format->codes;
    layout.half_groups = format->half_groups;
    return layout;
  }
  layout.group_size = quantization->group_size;
  layout.type = number_type(arrays.scales->dtype());
  layout.symmetric = symmetric;
  return layout;
}

std::shared_ptr<const PanelMatrix> hollow_matrix(
    const WeightArrays& arrays,
    const HollowSource& source,
    const Selection& selection) {
  const bool packs = source.quantization ? !arrays.global_scale &&
          PanelMatrix::can_pack(arrays, *source.quantization)
                                         : PanelMatrix::can_pack(arrays.weight);
  return packs ? PanelMatrix::without_numbers(
                     arrays,
                     source.quantization,
                     source.symmetric,
                     selection)
               : nullptr;
}

}  // namespace

std::shared_ptr<const PanelMatrix> PanelMatrix::without_numbers(
    const WeightArrays& arrays,
    const std::optional<QuantizationSpec>& quantization,
    bool symmetric,
    const Selection& selection) {
  std::shared_ptr<PanelMatrix> matrix(new PanelMatrix(
      layout_of(arrays, quantization, symmetric),
      arrays.weight.shape(0),
      selection));
  matrix->size_ = matrix->panels() * matrix->layout_.panel_bytes();
  return matrix;
}

std::shared_ptr<const PackedWeights> hollow_panels(
    const HollowSource& source,
    const Selection& selection) {
  if (selection.fallback || backend() != Backend::cpu) {
    return nullptr;
  }
  if (source.arrays.weight.ndim() != 3) {
    auto matrix = hollow_matrix(source.arrays, source, selection);
    return matrix ? std::make_shared<PackedPanels>(std::move(matrix)) : nullptr;
  }
  if (source.arrays.global_scale || source.arrays.weight.shape(0) < 1) {
    return nullptr;
  }
  auto expert = hollow_matrix(first_of(source.arrays), source, selection);
  if (!expert) {
    return nullptr;
  }
  std::vector<std::shared_ptr<const PanelMatrix>> experts(
      static_cast<size_t>(source.arrays.weight.shape(0)),
      expert);
  return std::make_shared<PackedExperts>(
      std::make_shared<const ExpertPanels>(std::move(experts), selection));
}

}  // namespace mlxx::kernels
