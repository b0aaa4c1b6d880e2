#include "mlxx/kernels/expert_matmul/device_experts.h"

#include <algorithm>

#include "mlxx/core/compiled_function.h"
#include "mlxx/core/custom_kernel.h"
#include "mlxx/kernels/expert_matmul/expert_tiles_text.h"
#include "mlxx/kernels/expert_matmul/sorted_rows.h"
#include "mlxx/kernels/quantized_matmul/device_matmul.h"
#include "mlxx/kernels/quantized_matmul/few_rows_text.h"
#include "mlxx/kernels/quantized_matmul/half_pairs_text.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kWarps = 8;      // of a block of few_rows.cuh
constexpr int kColumns = 16;   // of such a block
constexpr int kMostTiles = 8;  // of 8 rows, of a block
constexpr int kThreads = 256;  // of expert_tiles.cuh
constexpr int kMostExperts = 4096;
constexpr int kMostRows = 65535;  // in any order: what a grid holds in y

mx::array mlx_product(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& indices,
    bool sorted) {
  return mx::gather_qmm(
      x,
      arrays.weight,
      *arrays.scales,
      arrays.biases,
      std::nullopt,
      indices,
      true,
      quantization.group_size,
      quantization.bits,
      quantization.mode,
      std::nullopt,
      sorted);
}

int number_of(const CustomKernelCall& call, std::string_view name) {
  auto found = std::ranges::find(
      call.template_values,
      name,
      [](const auto& named) -> std::string_view { return named.first; });
  return std::get<int>(found->second);
}

// {x [rows / SHARED, in], w, scales, biases, experts [rows], tiles}.
Arrays plain_rows(const CustomKernelCall& call) {
  const auto& in = call.inputs;
  int shared = number_of(call, "SHARED");
  mx::array x = mx::expand_dims(in[0], 1);
  mx::array y = mlx_product(
      shared == 1 ? x : mx::repeat(x, shared, 0),
      {in[1], in[2], in[3], std::nullopt},
      {number_of(call, "GROUP"), number_of(call, "BITS"), "affine"},
      in[4],
      false);
  return {mx::squeeze(y, 1)};
}

CustomKernel make_rows_kernel(bool tiled) {
  const char* tile = tiled ? R"(
  const int* at = tiles + blockIdx.y * 3;
  mlxx_few_rows::Tile tile{at[0], at[1], at[2]};
  if (tile.count == 0) {
    return;
  }
  const T* rows = x;
)"
                           : R"(
  int row = blockIdx.y;
  mlxx_few_rows::Tile tile{experts[row], row, 1};
  const T* rows = x + (size_t)(row / SHARED) * x_shape[1] -
      (size_t)row * x_shape[1];
)";
  return CustomKernel(
      {.name = tiled ? "mlxx_expert_tiles_rows" : "mlxx_expert_rows",
       .input_names = {"x", "w", "scales", "biases", "experts", "tiles"},
       .output_names = {"y"},
       .cuda =
           DeviceKernelSource{
               .source = std::string(tile) + R"(
  __shared__ float shared[WARPS * NT * 128];
  mlxx_few_rows::few_rows<T, S, BITS, GROUP, NT, WARPS>(
      rows, w, scales, biases, nullptr, tile, w_shape[1], x_shape[1], y,
      shared);
)",
               .header = std::string(kHalfPairsText) + kFewRowsText},
       .fallback = plain_rows});
}

CustomKernel make_tiles_kernel() {
  return CustomKernel(
      {.name = "mlxx_expert_tiles",
       .input_names = {"experts"},
       .output_names = {"tiles"},
       .cuda =
           DeviceKernelSource{
               .source = R"(
  __shared__ int shared[MATRICES + 1];
  mlxx_expert_tiles::find(
      experts, experts_shape[0], MATRICES, HEIGHT, experts_shape[0] / HEIGHT +
      MATRICES, shared, tiles);
)",
               .header = kExpertTilesText},
       // Without a GPU nothing reads them.
       .fallback = [](const CustomKernelCall& call) {
         return Arrays{mx::zeros(call.output_shapes[0], mx::int32)};
       }});
}

// x [rows / shared, in] -> [rows, out].
mx::array by_kernel(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& experts,
    int shared,
    bool sorted) {
  static const CustomKernel find_tiles = make_tiles_kernel();
  static const CustomKernel tiled = make_rows_kernel(true);
  static const CustomKernel single = make_rows_kernel(false);
  int rows = experts.shape(0);
  int matrices = arrays.weight.shape(0);
  int out = arrays.weight.shape(1);
  int tiles = 1;
  mx::array table = experts;
  int down = rows;
  if (sorted) {
    while (tiles < kMostTiles && tiles * 8 * matrices < rows) {
      tiles *= 2;
    }
    down = rows / (tiles * 8) + matrices;
    table = find_tiles(
        {.inputs = {experts},
         .output_shapes = {{down, 3}},
         .output_dtypes = {mx::int32},
         .template_values = {{"MATRICES", matrices}, {"HEIGHT", tiles * 8}},
         .grid = {kThreads},
         .threadgroup = {kThreads}})[0];
  }
  int across = (out + kColumns - 1) / kColumns;
  return (sorted ? tiled : single)(
      {.inputs =
           {x, arrays.weight, *arrays.scales, *arrays.biases, experts, table},
       .output_shapes = {{rows, out}},
       .output_dtypes = {x.dtype()},
       .template_values =
           {{"T", x.dtype()},
            {"S", arrays.scales->dtype()},
            {"BITS", quantization.bits},
            {"GROUP", quantization.group_size},
            {"NT", tiles},
            {"SHARED", shared},
            {"WARPS", kWarps}},
       .grid = {across * kWarps * 32, down},
       .threadgroup = {kWarps * 32}})[0];
}

mx::array by_dense_matrices(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& experts) {
  mx::array dense = device_dequantize(arrays, quantization, x.dtype());
  return mx::squeeze(
      mx::gather_mm(
          sorted_rows(x),
          mx::swapaxes(dense, -1, -2),
          std::nullopt,
          experts,
          /* sorted_indices= */ true),
      1);
}

}  // namespace

bool covers_device_experts(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& indices) {
  bool half = x.dtype() == mx::bfloat16 || x.dtype() == mx::float16;
  if (!half || quantization.mode != "affine" || !arrays.biases ||
      (quantization.bits != 4 && quantization.bits != 8) ||
      quantization.group_size < 32 || arrays.global_scale ||
      arrays.weight.shape(0) > kMostExperts || indices.size() == 0 ||
      indices.size() > kMostRows || is_shapeless_tracing()) {
    return false;
  }
  // One row of x for each index, or for all of the last axis of the indices.
  mx::Shape leading(x.shape().begin(), x.shape().end() - 2);
  mx::Shape of_each = indices.shape();
  mx::Shape of_runs = of_each;
  of_runs.back() = 1;
  return x.shape(-2) == 1 && (leading == of_each || leading == of_runs) &&
      mx::promote_types(x.dtype(), arrays.scales->dtype()) == x.dtype();
}

mx::array device_expert_matmul(
    const mx::array& x,
    const WeightArrays& arrays,
    const QuantizationSpec& quantization,
    const mx::array& indices,
    bool sorted) {
  int rows = static_cast<int>(indices.size());
  int in = x.shape(-1);
  int given = static_cast<int>(x.size() / in);
  int shared = rows / given;
  mx::array experts = mx::astype(mx::reshape(indices, {rows}), mx::int32);
  auto product = [=](const mx::array& flat) {
    bool many =
        sorted && shared == 1 && rows > kRowsOfExpert * arrays.weight.shape(0);
    return many ? by_dense_matrices(flat, arrays, quantization, experts)
                : by_kernel(
                      flat,
                      arrays,
                      quantization,
                      experts,
                      shared,
                      sorted && shared == 1);
  };
  mx::array flat = mx::reshape(x, {given, in});
  mx::array y = [&] {
    if (!x.is_tracer()) {
      return product(flat);
    }
    return mx::custom_vjp(
        [product](const Arrays& inputs) { return Arrays{product(inputs[0])}; },
        [=](const Arrays&, const Arrays& cotangents, const Arrays&) {
          mx::array g = mx::squeeze(
              mx::gather_mm(
                  sorted_rows(cotangents[0]),
                  device_dequantize(
                      arrays,
                      quantization,
                      cotangents[0].dtype()),
                  std::nullopt,
                  experts,
                  sorted),
              1);
          return Arrays{
              shared == 1 ? g
                          : mx::sum(mx::unflatten(g, 0, {given, shared}), 1)};
        })({flat})[0];
  }();
  mx::Shape shape = indices.shape();
  shape.push_back(1);
  shape.push_back(y.shape(-1));
  return mx::reshape(y, shape);
}

}  // namespace mlxx::kernels
