#include "mlxx/models/load_weights.h"

#include <algorithm>
#include <map>

#include "mlxx/base/error.h"
#include "mlxx/core/device.h"
#include "mlxx/core/materialize.h"
#include "mlxx/core/memory.h"
#include "mlxx/kernels/cuda_plugin/cuda_plugin.h"
#include "mlxx/kernels/expert_matmul/expert_matmul.h"
#include "mlxx/kernels/matmul/matmul.h"
#include "mlxx/kernels/panel_memory.h"
#include "mlxx/kernels/quantized_matmul/quantized_matmul.h"
#include "mlxx/models/hollow_weights.h"

namespace mlxx::models {
namespace {

using TensorMap = std::map<std::string, hub::TensorInfo>;

std::string shape_text(const auto& shape) {
  return fmt::format("[{}]", fmt::join(shape.begin(), shape.end(), ", "));
}

// What the floating-point numbers of the checkpoint become.
struct DtypePlan {
  std::optional<mx::Dtype> compute;  // absent: as stored
  hub::LoadDtype load;
};

DtypePlan plan_dtypes(
    const hub::Checkpoint& checkpoint,
    const kernels::Selection& selection) {
  bool is_gguf = checkpoint.format() == "gguf";
  if (backend() == Backend::cpu) {
    if (selection.fallback && !is_gguf) {
      return {std::nullopt, {}};
    }
    return {mx::float32, {.scales = mx::float32}};
  }
  if (!is_gguf) {
    return {std::nullopt, {}};
  }
  // Half precision cannot hold what bfloat16 can, so a file that has some
  // stays in it.
  bool has_bfloat16 = std::ranges::any_of(
      checkpoint.tensors(),
      [](const auto& t) { return t.stored == "BF16"; });
  // And so do the CUDA kernels, which know no other half precision.
  bool cuda_kernels = !selection.fallback && kernels::cuda_plugin();
  mx::Dtype half = has_bfloat16 || cuda_kernels ? mx::bfloat16 : mx::float16;
  return {half, {.scales = half}};
}

// Where config.json names no form for a packed matrix, only the product of
// bits and group size is sure; with the width that the model wants both are, as
// in mlx-lm.
void settle_form(hub::TensorInfo& tensor, int64_t wanted_width) {
  auto& q = *tensor.quantization;
  int64_t width = tensor.shape.back();
  int64_t packed_bits = width * q.bits;
  int64_t groups = width / q.group_size;
  if (!q.is_default || q.mode != "affine" || width == wanted_width ||
      wanted_width <= 0 || groups <= 0 || packed_bits % wanted_width != 0 ||
      wanted_width % groups != 0) {
    return;
  }
  int64_t bits = packed_bits / wanted_width;
  int64_t group = wanted_width / groups;
  bool fits = (group == 32 || group == 64 || group == 128) &&
      (bits == 2 || bits == 3 || bits == 4 || bits == 5 || bits == 6 ||
       bits == 8);
  if (fits) {
    q.bits = static_cast<int>(bits);
    q.group_size = static_cast<int>(group);
    tensor.shape.back() = wanted_width;
  }
}

// Names and shapes, before a byte of weights is read.
void check_parameter(
    const std::string& place,
    const std::string& name,
    const Parameter& parameter,
    hub::TensorInfo& tensor) {
  const auto& wanted = parameter.shape();
  if (tensor.quantization && !wanted.empty()) {
    settle_form(tensor, wanted.back());
  }
  if (!std::ranges::equal(wanted, tensor.shape)) {
    fail(
        ErrorKind::bad_file,
        place,
        "tensor '{}' has shape {}, the config asks for {}",
        name,
        shape_text(tensor.shape),
        shape_text(wanted));
  }
  if (tensor.quantization && parameter.kind() != Parameter::Kind::matrix) {
    fail(
        ErrorKind::bad_file,
        place,
        "tensor '{}' is quantized ({}), which only a matrix can be",
        name,
        tensor.stored);
  }
}

void check_surplus(
    const std::string& place,
    const WeightTarget& target,
    const TensorMap& unused) {
  std::vector<std::string> names;
  for (const auto& [name, tensor] : unused) {
    if (!target.skips(name)) {
      names.push_back("'" + name + "'");
    }
  }
  if (names.empty()) {
    return;
  }
  constexpr size_t kNamed = 3;
  size_t rest = names.size() > kNamed ? names.size() - kNamed : 0;
  names.resize(std::min(names.size(), kNamed));
  fail(
      ErrorKind::bad_file,
      place,
      "a {} model has no use for {}{}",
      target.model_type,
      fmt::join(names, ", "),
      rest > 0 ? fmt::format(" and {} more", rest) : "");
}

std::optional<QuantizationSpec> spec_of(const hub::TensorInfo& tensor) {
  if (!tensor.quantization) {
    return std::nullopt;
  }
  const auto& q = *tensor.quantization;
  return QuantizationSpec{q.group_size, q.bits, q.mode};
}

mx::array cast(const mx::array& a, const std::optional<mx::Dtype>& dtype) {
  bool floating = mx::issubdtype(a.dtype(), mx::floating);
  return floating && dtype ? mx::astype(a, *dtype) : a;
}

WeightArrays load_arrays(
    const hub::Checkpoint& checkpoint,
    const hub::TensorInfo& tensor,
    const DtypePlan& plan) {
  hub::Weight weight = checkpoint.load(tensor.name, plan.load);
  if (!tensor.quantization) {
    if (!mx::issubdtype(weight.weight.dtype(), mx::floating)) {
      fail(
          ErrorKind::bad_file,
          checkpoint.path().string(),
          "tensor '{}' holds {}, not floating-point numbers",
          tensor.name,
          tensor.stored);
    }
    return {weight.weight, std::nullopt, std::nullopt};
  }
  auto cast_part = [&](const std::optional<mx::array>& part) {
    return part ? std::optional(cast(*part, plan.compute)) : std::nullopt;
  };
  return {
      weight.weight,
      cast_part(weight.scales),
      cast_part(weight.biases),
      weight.global_scale};
}

// A quantized weight as a dense one.
WeightArrays dequantized(
    const WeightArrays& arrays,
    const QuantizationSpec& spec) {
  mx::array dense = mx::dequantize(
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      spec.group_size,
      spec.bits,
      spec.mode,
      arrays.global_scale);
  return {dense, std::nullopt, std::nullopt};
}

// Null if the tensor has to take the way through MLX's form.
std::shared_ptr<const PackedWeights> pack_from_file(
    const hub::Checkpoint& checkpoint,
    const hub::TensorInfo& tensor,
    const kernels::Selection& selection) {
  if (!tensor.quantization || tensor.shape.size() != 2 ||
      !selection.has_cpu_kernels()) {
    return nullptr;
  }
  auto rows = checkpoint.rows(tensor.name);
  return rows ? kernels::pack_rows(*rows, selection) : nullptr;
}

// Null: MLX's form stays.
std::shared_ptr<const PackedWeights> pack(
    const Parameter& parameter,
    const WeightArrays& arrays,
    const std::optional<QuantizationSpec>& spec,
    const kernels::Selection& selection) {
  if (parameter.kind() != Parameter::Kind::matrix) {
    return nullptr;
  }
  if (parameter.shape().size() == 3) {
    return kernels::pack_experts(arrays, spec, selection);
  }
  return spec ? kernels::pack_quantized(arrays, *spec, selection)
              : kernels::pack_dense(arrays.weight, selection);
}

}  // namespace

void load_weights(
    const hub::Checkpoint& checkpoint,
    const WeightTarget& target,
    const kernels::Selection& selection,
    const LoadOptions& options) {
  std::string place = checkpoint.path().string();
  TensorMap unused;
  uint64_t total = 0;
  for (const auto& tensor : checkpoint.tensors()) {
    unused[tensor.name] = tensor;
  }
  TensorMap used;
  target.visit([&](const std::string& name, Parameter& parameter) {
    auto found = unused.find(name);
    if (found == unused.end()) {
      fail(
          ErrorKind::bad_file,
          place,
          "tensor '{}' of shape {} is missing",
          name,
          shape_text(parameter.shape()));
    }
    check_parameter(place, name, parameter, found->second);
    total += found->second.nbytes;
    used.insert(unused.extract(found));
  });
  check_surplus(place, target, unused);

  if (options.sizes_only) {
    const DtypePlan plan = plan_dtypes(checkpoint, selection);
    target.visit([&](const std::string& name, Parameter& parameter) {
      set_hollow(
          parameter,
          used.at(name),
          checkpoint.format(),
          plan.compute,
          plan.load.scales,
          selection);
    });
    return;
  }

  kernels::Selection placed = selection;
  if (selection.has_cpu_kernels()) {
    // Of one size with the file, or nearly.
    placed.memory = std::make_shared<kernels::PanelMemory>(total);
  }
  auto product = kernels::dense_product(selection);
  DtypePlan plan = plan_dtypes(checkpoint, selection);
  uint64_t read = 0;
  Materializer materializer(options.chunk_bytes, [&](uint64_t) {
    if (options.progress) {
      options.progress(read, total);
    }
  });
  target.visit([&](const std::string& name, Parameter& parameter) {
    const hub::TensorInfo& tensor = used.at(name);
    if (parameter.kind() == Parameter::Kind::matrix) {
      parameter.set_product(product);
    }
    auto spec = spec_of(tensor);
    read += tensor.nbytes;
    auto from_file =
        target.dense ? nullptr : pack_from_file(checkpoint, tensor, placed);
    if (from_file) {
      parameter.set_packed(std::move(from_file), spec);
      if (options.progress) {
        options.progress(read, total);
      }
      return;
    }
    WeightArrays arrays = load_arrays(checkpoint, tensor, plan);
    if (target.dense && spec) {
      arrays = dequantized(arrays, *spec);
      spec.reset();
    }
    auto packed =
        target.dense ? nullptr : pack(parameter, arrays, spec, placed);
    if (packed) {
      parameter.set(std::move(arrays), spec);
      parameter.set_packed(std::move(packed));
      if (options.progress) {
        options.progress(read, total);
      }
      return;
    }
    if (!spec) {
      arrays.weight = cast(arrays.weight, plan.compute);
    }
    for (const auto& part :
         {std::optional(arrays.weight), arrays.scales, arrays.biases}) {
      if (part) {
        materializer.add(*part);
      }
    }
    parameter.set(std::move(arrays), spec);
  });
  materializer.finish();
  // What the conversions used goes back to the system.
  clear_cache();
}

}  // namespace mlxx::models
