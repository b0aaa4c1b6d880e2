#include "mlxx/models/hollow_weights.h"

#include <algorithm>

#include <mlx/primitives.h>

#include "mlxx/base/error.h"
#include "mlxx/kernels/quantized_matmul/hollow_panels.h"

namespace mlxx::models {

namespace {

// Stands for numbers that nobody reads.
class Hollow : public mx::Primitive {
 public:
  Hollow() : Primitive(mx::default_stream(mx::default_device())) {}

  void eval_cpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    refuse();
  }
  void eval_gpu(const std::vector<mx::array>&, std::vector<mx::array>&)
      override {
    refuse();
  }
  const char* name() const override {
    return "Hollow";
  }

 private:
  [[noreturn]] static void refuse() {
    fail(ErrorKind::internal, "models", "a model without numbers was computed");
  }
};

mx::array hollow(mx::Shape shape, mx::Dtype dtype) {
  return mx::array(
      std::move(shape),
      dtype,
      std::make_shared<Hollow>(),
      std::vector<mx::array>{});
}

mx::Dtype dtype_of(const std::string& stored) {
  return stored == "BF16" ? mx::bfloat16
      : stored == "F16"   ? mx::float16
                          : mx::float32;
}

// Of an affine matrix whose scales and biases lie beside it in a file.
mx::Dtype stored_scales(
    const hub::TensorInfo& tensor,
    uint64_t word_bytes,
    uint64_t groups) {
  const uint64_t rest = tensor.nbytes - std::min(tensor.nbytes, word_bytes);
  return rest >= 8 * groups ? mx::float32 : mx::float16;
}

// Types of GGUF whose biases are a fixed multiple of the scales.
bool is_symmetric(const std::string& stored) {
  return stored == "Q4_0" || stored == "Q5_0" || stored == "Q8_0" ||
      stored == "Q6_K";
}

// Types of GGUF whose scales are products, which float16 cannot hold.
bool has_wide_scales(const std::string& stored) {
  return stored == "Q4_K" || stored == "Q5_K" || stored == "IQ4_XS";
}

kernels::HollowSource quantized_source(
    const Parameter& parameter,
    const hub::TensorInfo& tensor,
    const std::string& checkpoint_format) {
  const auto& q = *tensor.quantization;
  mx::Shape words = parameter.shape();
  mx::Shape groups = parameter.shape();
  const int64_t width = words.back();
  words.back() = static_cast<int>(width * q.bits / 32);
  groups.back() = static_cast<int>(width / q.group_size);
  mx::array weight = hollow(std::move(words), mx::uint32);
  kernels::HollowSource source{
      {weight, std::nullopt, std::nullopt},
      QuantizationSpec{q.group_size, q.bits, q.mode}};
  if (q.mode != "affine") {
    source.arrays.scales = hollow(std::move(groups), mx::uint8);
    if (q.has_global_scale) {
      source.arrays.global_scale = mx::array(1.0f);
    }
    return source;
  }
  const bool is_gguf = checkpoint_format == "gguf";
  uint64_t count = 1;
  for (int size : groups) {
    count *= static_cast<uint64_t>(size);
  }
  const mx::Dtype number = is_gguf
      ? (has_wide_scales(tensor.stored) ? mx::float32 : mx::float16)
      : stored_scales(tensor, weight.nbytes(), count);
  source.arrays.scales = hollow(groups, number);
  source.arrays.biases = hollow(std::move(groups), number);
  source.symmetric = is_gguf && is_symmetric(tensor.stored);
  return source;
}

}  // namespace

void set_hollow(
    Parameter& parameter,
    const hub::TensorInfo& tensor,
    const std::string& checkpoint_format,
    const std::optional<mx::Dtype>& compute,
    mx::Dtype scales,
    const kernels::Selection& selection) {
  const auto spec = tensor.quantization ? std::optional(QuantizationSpec{
                                              tensor.quantization->group_size,
                                              tensor.quantization->bits,
                                              tensor.quantization->mode})
                                        : std::nullopt;
  kernels::HollowSource source = spec
      ? quantized_source(parameter, tensor, checkpoint_format)
      : kernels::HollowSource{
            {hollow(
                 parameter.shape(),
                 dtype_of(
                     tensor.loads_as.empty() ? tensor.stored
                                             : tensor.loads_as)),
             std::nullopt,
             std::nullopt},
            std::nullopt};
  if (parameter.kind() == Parameter::Kind::matrix) {
    if (auto packed = kernels::hollow_panels(source, selection)) {
      parameter.set_packed(std::move(packed), spec);
      return;
    }
  }
  if (!spec) {
    const mx::Dtype number = compute ? *compute : source.arrays.weight.dtype();
    // Models look at some of their vectors when they are put together.
    source.arrays.weight = parameter.kind() == Parameter::Kind::matrix
        ? hollow(parameter.shape(), number)
        : mx::zeros(parameter.shape(), number);
  } else if (source.arrays.biases) {
    const mx::Dtype number = compute  ? *compute
        : checkpoint_format == "gguf" ? scales
                                      : source.arrays.scales->dtype();
    source.arrays.scales = hollow(source.arrays.scales->shape(), number);
    source.arrays.biases = hollow(source.arrays.biases->shape(), number);
  }
  parameter.set(std::move(source.arrays), spec);
}

}  // namespace mlxx::models
