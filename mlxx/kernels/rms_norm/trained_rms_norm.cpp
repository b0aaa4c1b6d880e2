#include "mlxx/kernels/rms_norm/trained_rms_norm.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/custom_vjp.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/rms_norm/rms_norm.h"
#include "mlxx/kernels/swiglu/wide_numbers_text.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kBytes = 16;  // of numbers that one thread loads at once
constexpr int kThreads = 256;

// A block for each row.
constexpr auto kBody = R"(
  __shared__ float sums[THREADS / 32];
  int width = x_shape[1];
  const T* row = x + (long long)blockIdx.x * width;
  T* out = y + (long long)blockIdx.x * width;
  float sum = 0.0f;
  for (int i = threadIdx.x * EACH; i < width; i += THREADS * EACH) {
    auto numbers = mlxx_wide::load<T, EACH>(row, i, width);
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
      float one = float(numbers.x[k]);
      sum += one * one;
    }
  }
  for (int step = 16; step > 0; step /= 2) {
    sum += __shfl_xor_sync(0xffffffffu, sum, step);
  }
  if (threadIdx.x % 32 == 0) {
    sums[threadIdx.x / 32] = sum;
  }
  __syncthreads();
  sum = 0.0f;
  for (int k = 0; k < THREADS / 32; ++k) {
    sum += sums[k];
  }
  float by = rsqrtf(sum / width + eps[0]);
  for (int i = threadIdx.x * EACH; i < width; i += THREADS * EACH) {
    auto numbers = mlxx_wide::load<T, EACH>(row, i, width);
    auto weights = mlxx_wide::load<T, EACH>(weight, i, width);
    #pragma unroll
    for (int k = 0; k < EACH; ++k) {
      T normed = T(float(numbers.x[k]) * by);
      numbers.x[k] = T(float(normed) * float(weights.x[k]));
    }
    mlxx_wide::store<T, EACH>(out, numbers, i, width);
  }
)";

CustomKernel make_kernel() {
  return CustomKernel(
      {.name = "mlxx_rms_norm",
       .input_names = {"x", "weight", "eps"},
       .output_names = {"y"},
       .cuda =
           DeviceKernelSource{.source = kBody, .header = kWideNumbersText}});
}

// {x, weight}
mx::array normed(const Arrays& in, float eps) {
  static const CustomKernel kernel = make_kernel();
  const mx::array& x = in[0];
  mx::array rows = mx::flatten(x, 0, -2);
  CustomKernelCall call;
  call.inputs = {rows, in[1], mx::array({eps})};
  call.output_shapes = {rows.shape()};
  call.output_dtypes = {x.dtype()};
  call.template_values = {
      {"T", x.dtype()},
      {"EACH", kBytes / static_cast<int>(x.itemsize())},
      {"THREADS", kThreads}};
  call.grid = {rows.shape(0) * kThreads, 1, 1};
  call.threadgroup = {kThreads, 1, 1};
  return mx::reshape(kernel(call)[0], x.shape());
}

}  // namespace

mx::array trained_rms_norm(
    const mx::array& x,
    const mx::array& weight,
    float eps,
    const Selection& selection) {
  constexpr int kFewest = 256;
  if (backend() != Backend::cuda || selection.fallback || x.size() == 0 ||
      x.dtype() != weight.dtype() || x.ndim() < 2 || x.shape(-1) < kFewest ||
      weight.ndim() != 1) {
    return rms_norm(x, weight, eps, selection);
  }
  auto function = custom_vjp(
      "rms norm",
      [eps](const Arrays& in) { return Arrays{normed(in, eps)}; },
      [eps](const Arrays& in, const Arrays& d, const Arrays&) {
        auto plain = [eps](const Arrays& x) {
          return Arrays{mx::fast::rms_norm(x[0], x[1], eps)};
        };
        return mx::vjp(plain, in, d).second;
      });
  return function({x, weight})[0];
}

}  // namespace mlxx::kernels
