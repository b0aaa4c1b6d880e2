#include "mlxx/kernels/cuda_plugin/cuda_packed.h"

#include <fmt/format.h>

#include "mlxx/kernels/quantized_matmul/device_matmul.h"

namespace mlxx::kernels {
namespace {

std::optional<cuda::WeightFormat> format_of(const QuantizationSpec& spec) {
  bool affine = spec.mode == "affine" &&
      (spec.group_size == 32 || spec.group_size == 64 ||
       spec.group_size == 128);
  if (affine && spec.bits == 4) {
    return cuda::WeightFormat::affine4;
  }
  if (affine && spec.bits == 8) {
    return cuda::WeightFormat::affine8;
  }
  if (spec.mode == "mxfp4") {
    return cuda::WeightFormat::mxfp4;
  }
  if (spec.mode == "nvfp4") {
    return cuda::WeightFormat::nvfp4;
  }
  return std::nullopt;
}

}  // namespace

mx::array CudaPacked::matmul(const mx::array& x) const {
  WeightArrays arrays = restore();
  mx::array product = quantization_
      ? device_quantized_matmul(x, arrays, *quantization_)
      : mx::matmul(x, mx::transpose(arrays.weight));
  return mx::astype(product, x.dtype());
}

mx::array CudaPacked::take_rows(const mx::array& ids) const {
  WeightArrays arrays = restore();
  mx::array rows = mx::take(arrays.weight, ids, 0);
  if (!quantization_) {
    return rows;
  }
  auto taken = [&](const std::optional<mx::array>& part) {
    return part ? std::optional(mx::take(*part, ids, 0)) : std::nullopt;
  };
  return device_dequantize(
      {rows, taken(arrays.scales), taken(arrays.biases), std::nullopt},
      *quantization_,
      mx::bfloat16);
}

WeightArrays CudaPacked::restore() const {
  return plugin_.unpack(whole_, order_, first_, rows_);
}

size_t CudaPacked::nbytes() const {
  return whole_->nbytes() * size_t(rows_) / size_t(whole_->matrix.rows);
}

std::optional<cuda::PackedMatrix> cuda_form(
    const Parameter& parameter,
    std::string& why) {
  if (!parameter.is_set() || parameter.kind() != Parameter::Kind::matrix ||
      parameter.shape().size() != 2) {
    why = "it is no matrix";
    return std::nullopt;
  }
  if (parameter.packed() &&
      !dynamic_cast<const CudaPacked*>(parameter.packed().get())) {
    why = "it is in another kernel's form";
    return std::nullopt;
  }
  cuda::PackedMatrix form;
  form.rows = parameter.shape()[0];
  form.columns = parameter.shape()[1];
  const auto& spec = parameter.quantization();
  if (spec) {
    auto format = format_of(*spec);
    if (!format) {
      why = fmt::format(
          "{} with {} bits in groups of {} has no kernel",
          spec->mode,
          spec->bits,
          spec->group_size);
      return std::nullopt;
    }
    form.format = *format;
    form.group = spec->group_size;
  }
  if (!parameter.packed()) {
    const WeightArrays& arrays = parameter.arrays();
    if (arrays.weight.status() == mx::array::Status::unscheduled) {
      why = "its numbers are not read";
      return std::nullopt;
    }
    if (arrays.global_scale) {
      why = "it has a scale of the whole matrix";
      return std::nullopt;
    }
    if (!spec && arrays.weight.dtype() != mx::bfloat16 &&
        arrays.weight.dtype() != mx::float16) {
      why = "its numbers are not of 16 bits";
      return std::nullopt;
    }
  }
  return form;
}

}  // namespace mlxx::kernels
