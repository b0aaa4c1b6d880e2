#include "mlxx/kernels/linear_cross_entropy/device_scores.h"

#include "mlxx/core/custom_kernel.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

constexpr int kThreads = 512;

// One group for each row: each thread keeps a maximum and a sum below it, which
// are then joined (Milakov and Gimelshein, "Online normalizer calculation for
// softmax"). LANE, ROW, SHARED, SYNC, EXP, LOG and TANH are the device's.
constexpr auto kBody = R"(
  SHARED float most_of[THREADS];
  SHARED float sum_of[THREADS];
  int lane = LANE;
  long row = ROW;
  int width = x_shape[1];
  long at = row * width;
  float by = factor[0];
  float cap = softcap[0];
  float most = -3.0e38f;
  float sum = 0.0f;
  for (int i = lane; i < width; i += THREADS) {
    float l = float(x[at + i]) * by;
    if (CAPPED) {
      l = cap * TANH(l / cap);
    }
    if (l > most) {
      sum = sum * EXP(most - l) + 1.0f;
      most = l;
    } else {
      sum += EXP(l - most);
    }
  }
  most_of[lane] = most;
  sum_of[lane] = sum;
  SYNC;
  for (int half_size = THREADS / 2; half_size > 0; half_size /= 2) {
    if (lane < half_size) {
      float other = most_of[lane + half_size];
      float both = other > most_of[lane] ? other : most_of[lane];
      sum_of[lane] = sum_of[lane] * EXP(most_of[lane] - both) +
          sum_of[lane + half_size] * EXP(other - both);
      most_of[lane] = both;
    }
    SYNC;
  }
  float all = most_of[0] + LOG(sum_of[0]);
  int target = targets[row];
  for (int i = lane; i < width; i += THREADS) {
    float l = float(x[at + i]) * by;
    float slope = by;
    if (CAPPED) {
      float part = TANH(l / cap);
      l = cap * part;
      slope *= 1.0f - part * part;
    }
    float p = EXP(l - all);
    if (i == target) {
      scores[row] = l - all;
      change[at + i] = T((1.0f - p) * slope);
    } else {
      change[at + i] = T(-p * slope);
    }
  }
)";

constexpr auto kCuda = R"(
#define LANE threadIdx.x
#define ROW blockIdx.x
#define SHARED __shared__
#define SYNC __syncthreads()
#define EXP expf
#define LOG logf
#define TANH tanhf
)";

constexpr auto kMetal = R"(
#define LANE thread_position_in_threadgroup.x
#define ROW threadgroup_position_in_grid.x
#define SHARED threadgroup
#define SYNC threadgroup_barrier(mem_flags::mem_threadgroup)
#define EXP metal::precise::exp
#define LOG metal::precise::log
#define TANH metal::precise::tanh
)";

Arrays plain_scores(const CustomKernelCall& call) {
  mx::array factor = call.inputs[2];
  mx::array cap = call.inputs[3];
  bool capped = std::get<bool>(call.template_values[2].second);
  mx::array l = mx::multiply(mx::astype(call.inputs[0], mx::float32), factor);
  if (capped) {
    l = mx::multiply(mx::tanh(mx::divide(l, cap)), cap);
  }
  mx::array target = mx::expand_dims(call.inputs[1], 1);
  mx::array all = mx::logsumexp(l, 1, true);
  mx::array chosen = mx::take_along_axis(l, target, 1);
  mx::array is_target =
      mx::equal(mx::expand_dims(mx::arange(l.shape(1)), 0), target);
  mx::array change = mx::multiply(
      mx::subtract(
          mx::astype(is_target, mx::float32),
          mx::exp(mx::subtract(l, all))),
      factor);
  if (capped) {
    mx::array part = mx::divide(l, cap);
    change =
        mx::multiply(change, mx::subtract(mx::array(1.0f), mx::square(part)));
  }
  return {
      mx::squeeze(mx::subtract(chosen, all), 1),
      mx::astype(change, call.inputs[0].dtype())};
}

CustomKernel make_kernel() {
  return CustomKernel(
      {.name = "mlxx_row_scores",
       .input_names = {"x", "targets", "factor", "softcap"},
       .output_names = {"scores", "change"},
       .metal = DeviceKernelSource{.source = kBody, .header = kMetal},
       .cuda = DeviceKernelSource{.source = kBody, .header = kCuda},
       .fallback = plain_scores});
}

}  // namespace

RowScores device_scores(
    const mx::array& products,
    const mx::array& targets,
    float factor,
    float softcap) {
  static const CustomKernel kernel = make_kernel();
  int rows = products.shape(0);
  CustomKernelCall call;
  call.inputs = {products, targets, mx::array({factor}), mx::array({softcap})};
  call.output_shapes = {{rows}, products.shape()};
  call.output_dtypes = {mx::float32, products.dtype()};
  call.template_values = {
      {"T", products.dtype()},
      {"THREADS", kThreads},
      {"CAPPED", softcap != 0}};
  call.grid = {rows * kThreads, 1, 1};
  call.threadgroup = {kThreads, 1, 1};
  auto results = kernel(call);
  return {results[0], results[1]};
}

}  // namespace mlxx::kernels
