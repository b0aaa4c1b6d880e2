#include "mlxx/kernels/quantized_matmul/device_matmul.h"

#include <algorithm>

#include "mlxx/core/compiled_function.h"
#include "mlxx/core/custom_kernel.h"
#include "mlxx/kernels/quantized_matmul/dequantize_text.h"
#include "mlxx/kernels/quantized_matmul/few_rows_text.h"
#include "mlxx/kernels/quantized_matmul/half_pairs_text.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kUnit = 8;   // numbers that a thread of dequantize.cuh loads
constexpr int kUnits = 4;  // so often
constexpr int kThreads = 256;
constexpr int kWarps = 8;     // of few_rows.cuh
constexpr int kColumns = 16;  // of a block of few_rows.cuh

bool is_half(mx::Dtype dtype) {
  return dtype == mx::bfloat16 || dtype == mx::float16;
}

// As dequantize.cuh numbers them; nothing for what it does not know.
constexpr std::string_view kModes[] = {"affine", "mxfp4", "nvfp4", "mxfp8"};

std::optional<int> mode_number(const std::string& mode) {
  const auto* found = std::ranges::find(kModes, mode);
  return found == std::end(kModes)
      ? std::nullopt
      : std::optional(static_cast<int>(found - std::begin(kModes)));
}

mx::array mlx_dequantize(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    mx::Dtype dtype) {
  return mx::astype(
      mx::dequantize(
          arrays.weight,
          *arrays.scales,
          arrays.biases,
          quantization.group_size,
          quantization.bits,
          quantization.mode,
          arrays.global_scale),
      dtype);
}

mx::array mlx_matmul(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization) {
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

// The matrix of a call: its weight is input `first`, scales and biases follow.
std::pair<WeightArrays, QuantizationSpec> of_call(
    const CustomKernelCall& call,
    size_t first) {
  auto number = [&](std::string_view name) {
    auto found = std::ranges::find(
        call.template_values,
        name,
        [](const auto& named) -> std::string_view { return named.first; });
    return std::get<int>(found->second);
  };
  QuantizationSpec quantization{
      number("GROUP"),
      number("BITS"),
      std::string(kModes[number("MODE")])};
  WeightArrays arrays{call.inputs[first], call.inputs[first + 1], std::nullopt};
  if (quantization.mode == "affine") {
    arrays.biases = call.inputs[first + 2];
  }
  return {arrays, quantization};
}

// In pairs: of affine codes of 4 or 8 bits, in the 16-bit type of the scales.
CustomKernel make_dequantize_kernel(bool pairs) {
  std::string call = pairs ? "dequantize_pairs<T, BITS, GROUP>"
                           : "dequantize<T, S, MODE, BITS, GROUP>";
  return CustomKernel(
      {.name = pairs ? "mlxx_dequantize_pairs" : "mlxx_dequantize",
       .input_names = {"w", "scales", "biases"},
       .output_names = {"y"},
       .cuda =
           DeviceKernelSource{
               .source = R"(
  long long count = GROUP / mlxx_dequantize::kUnit;
  for (int axis = 0; axis < scales_ndim; ++axis) {
    count *= scales_shape[axis];
  }
  mlxx_dequantize::)" +
                   call + "(w, scales, biases, count, y);\n",
               .header = std::string(kHalfPairsText) + kDequantizeText},
       .fallback = [](const CustomKernelCall& use) {
         auto [arrays, quantization] = of_call(use, 0);
         return Arrays{
             mlx_dequantize(arrays, quantization, use.output_dtypes[0])};
       }});
}

CustomKernel make_few_rows_kernel() {
  return CustomKernel(
      {.name = "mlxx_few_rows",
       .input_names = {"x", "w", "scales", "biases"},
       .output_names = {"y"},
       .cuda =
           DeviceKernelSource{
               .source = R"(
  __shared__ float shared[WARPS * NT * 128];
  int first = blockIdx.y * NT * 8;
  mlxx_few_rows::Tile tile{0, first, min(NT * 8, x_shape[0] - first)};
  mlxx_few_rows::few_rows<T, S, BITS, GROUP, NT, WARPS>(
      x, w, scales, biases, nullptr, tile, w_shape[0], x_shape[1], y, shared);
)",
               .header = std::string(kHalfPairsText) + kFewRowsText},
       .fallback = [](const CustomKernelCall& call) {
         auto [arrays, quantization] = of_call(call, 1);
         return Arrays{mlx_matmul(call.inputs[0], arrays, quantization)};
       }});
}

// x [rows, in].
mx::array few_rows(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization) {
  static const CustomKernel kernel = make_few_rows_kernel();
  int rows = x.shape(0);
  int out = arrays.weight.shape(0);
  int tiles = 1;  // of 8 rows, of a block
  while (tiles * 8 < rows && tiles < kFewRows / 8) {
    tiles *= 2;
  }
  int across = (out + kColumns - 1) / kColumns;
  int down = (rows + tiles * 8 - 1) / (tiles * 8);
  return kernel(
      {.inputs = {x, arrays.weight, *arrays.scales, *arrays.biases},
       .output_shapes = {{rows, out}},
       .output_dtypes = {x.dtype()},
       .template_values =
           {{"T", x.dtype()},
            {"S", arrays.scales->dtype()},
            {"MODE", 0},
            {"BITS", quantization.bits},
            {"GROUP", quantization.group_size},
            {"NT", tiles},
            {"WARPS", kWarps}},
       .grid = {across * kWarps * 32, down},
       .threadgroup = {kWarps * 32}})[0];
}

// x [rows, in] in a dtype that the product keeps.
mx::array product(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization) {
  if (x.shape(0) <= kFewRows) {
    return covers_few_rows(arrays, quantization, x.dtype())
        ? few_rows(x, arrays, quantization)
        : mlx_matmul(x, arrays, quantization);
  }
  return mx::matmul(
      x,
      mx::transpose(device_dequantize(arrays, quantization, x.dtype())));
}

}  // namespace

bool covers_few_rows(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    mx::Dtype dtype) {
  return is_half(dtype) && quantization.mode == "affine" && arrays.biases &&
      (quantization.bits == 4 || quantization.bits == 8) &&
      quantization.group_size >= 32 && arrays.weight.ndim() == 2;
}

mx::array device_dequantize(
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    mx::Dtype dtype) {
  static const CustomKernel by_pairs = make_dequantize_kernel(true);
  static const CustomKernel by_numbers = make_dequantize_kernel(false);
  auto mode = mode_number(quantization.mode);
  bool known = mode && (is_half(dtype) || dtype == mx::float32) &&
      (quantization.mode != "affine" || arrays.biases);
  if (!known || arrays.global_scale || is_shapeless_tracing()) {
    return mlx_dequantize(arrays, quantization, dtype);
  }
  bool pairs = quantization.mode == "affine" && is_half(dtype) &&
      arrays.scales->dtype() == dtype &&
      (quantization.bits == 4 || quantization.bits == 8);
  mx::Shape shape = arrays.scales->shape();
  shape.back() *= quantization.group_size;
  int64_t numbers = 1;
  for (int size : shape) {
    numbers *= size;
  }
  int64_t threads = (numbers / kUnit + kUnits - 1) / kUnits;
  return (pairs ? by_pairs : by_numbers)(
      {.inputs =
           {arrays.weight,
            *arrays.scales,
            arrays.biases ? *arrays.biases : *arrays.scales},
       .output_shapes = {shape},
       .output_dtypes = {dtype},
       .template_values =
           {{"T", dtype},
            {"S", arrays.scales->dtype()},
            {"MODE", *mode},
            {"BITS", quantization.bits},
            {"GROUP", quantization.group_size}},
       .grid = {static_cast<int>(
           (threads + kThreads - 1) / kThreads * kThreads)},
       .threadgroup = {kThreads}})[0];
}

mx::array device_quantized_matmul(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization) {
  bool keeps_dtype = quantization.mode != "affine" ||
      mx::promote_types(x.dtype(), arrays.scales->dtype()) == x.dtype();
  if (!keeps_dtype || x.size() == 0 || is_shapeless_tracing()) {
    return mlx_matmul(x, arrays, quantization);
  }
  int in = x.shape(-1);
  int rows = static_cast<int>(x.size() / in);
  mx::array flat = x.ndim() == 2 ? x : mx::reshape(x, {rows, in});
  mx::array y = [&] {
    if (!x.is_tracer()) {
      return product(flat, arrays, quantization);
    }
    // Else a dense copy of every matrix would wait for its gradient.
    auto differentiable = mx::custom_vjp(
        [=](const Arrays& inputs) {
          return Arrays{product(inputs[0], arrays, quantization)};
        },
        [=](const Arrays&, const Arrays& cotangents, const Arrays&) {
          return Arrays{mx::matmul(
              cotangents[0],
              device_dequantize(arrays, quantization, cotangents[0].dtype()))};
        });
    return differentiable({flat})[0];
  }();
  mx::Shape shape = x.shape();
  shape.back() = y.shape(-1);
  return x.ndim() == 2 ? y : mx::reshape(y, shape);
}

}  // namespace mlxx::kernels
