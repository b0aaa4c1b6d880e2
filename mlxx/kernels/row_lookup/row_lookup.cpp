#include "mlxx/kernels/row_lookup/row_lookup.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/device.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kThreads = 256;

// A block for each row: that of the first one of its id sums them all.
constexpr auto kBody = R"(
  __shared__ int earlier;
  int row = blockIdx.x;
  int count = ids_shape[0];
  int width = d_shape[1];
  int id = ids[row];
  if (threadIdx.x == 0) {
    earlier = 0;
  }
  __syncthreads();
  for (int i = threadIdx.x; i < row; i += blockDim.x) {
    if (ids[i] == id) {
      earlier = 1;
    }
  }
  __syncthreads();
  if (earlier) {
    return;
  }
  for (int k = threadIdx.x; k < width; k += blockDim.x) {
    float sum = 0.0f;
    for (int i = row; i < count; ++i) {
      if (ids[i] == id) {
        sum += float(d[(long long)i * width + k]);
      }
    }
    d_table[(long long)id * width + k] = T(sum);
  }
)";

CustomKernel make_kernel() {
  return CustomKernel(
      {.name = "mlxx_looked_up_gradient",
       .input_names = {"ids", "d"},
       .output_names = {"d_table"},
       .cuda = DeviceKernelSource{.source = kBody}});
}

// d [n, E], ids [n] -> [V, E] in d's dtype
mx::array table_gradient(
    const mx::array& ids,
    const mx::array& d,
    const mx::Shape& table) {
  static const CustomKernel kernel = make_kernel();
  CustomKernelCall call;
  call.inputs = {ids, d};
  call.output_shapes = {table};
  call.output_dtypes = {d.dtype()};
  call.template_values = {{"T", d.dtype()}};
  call.grid = {ids.shape(0) * kThreads, 1, 1};
  call.threadgroup = {kThreads, 1, 1};
  call.init_value = 0.0f;
  return kernel(call)[0];
}

}  // namespace

mx::array looked_up_rows(const mx::array& table, const mx::array& ids) {
  if (backend() != Backend::cuda || table.ndim() != 2 || ids.size() == 0) {
    return mx::take(table, ids, 0);
  }
  mx::array flat = mx::flatten(mx::astype(ids, mx::int32));
  mx::Shape shape = table.shape();
  auto function = custom_vjp(
      "rows of a table",
      [ids](const Arrays& x) { return Arrays{mx::take(x[0], ids, 0)}; },
      [flat, shape](const Arrays&, const Arrays& d, const Arrays&) {
        return Arrays{table_gradient(
            flat,
            mx::reshape(d[0], {flat.shape(0), shape[1]}),
            shape)};
      });
  return function({table})[0];
}

}  // namespace mlxx::kernels
