// One kernel for three backends: silu(x) * y, as between the two halves of a
// gated layer. What runs here is compared with the plain operations.

#include <cmath>
#include <cstdio>
#include <exception>
#include <vector>

#include <mlxx/core/autograd.h>
#include <mlxx/core/custom_kernel.h>
#include <mlxx/core/host_values.h>

namespace mx = mlx::core;
using Arrays = std::vector<mx::array>;

void on_cpu(const mlxx::CpuKernelArguments& arguments) {
  const float* x = arguments.inputs[0].as<float>();
  const float* y = arguments.inputs[1].as<float>();
  float* z = arguments.outputs[0].as<float>();
  for (size_t i = 0; i < arguments.outputs[0].size; ++i) {
    z[i] = x[i] / (1 + std::exp(-x[i])) * y[i];
  }
}

Arrays by_operations(const mlxx::CustomKernelCall& call) {
  return {call.inputs[0] * mx::sigmoid(call.inputs[0]) * call.inputs[1]};
}

mlxx::CustomKernelSpec silu_times() {
  return {
      .name = "silu_times",
      .input_names = {"x", "y"},
      .output_names = {"z"},
      .metal = mlxx::DeviceKernelSource{.source = R"(
  uint i = thread_position_in_grid.x;
  z[i] = x[i] / (1 + metal::precise::exp(-x[i])) * y[i];
)"},
      .cuda = mlxx::DeviceKernelSource{.source = R"(
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < SIZE) z[i] = x[i] / (1 + expf(-x[i])) * y[i];
)"},
      .cpu = on_cpu,
      .fallback = by_operations};  // also where the gradient comes from
}

int main() try {
  mlxx::CustomKernel kernel(silu_times());
  mx::array x = mx::random::normal({100, 7}, mx::random::key(1));
  mx::array y = mx::random::normal({100, 7}, mx::random::key(2));
  auto call = [size = 700](const Arrays& xy) {
    return mlxx::CustomKernelCall{
        .inputs = xy,
        .output_shapes = {xy[0].shape()},
        .output_dtypes = {xy[0].dtype()},
        .template_values = {{"SIZE", size}},
        .grid = {size},
        .threadgroup = {32}};
  };
  auto ours = [&](const Arrays& xy) { return kernel(call(xy)); };
  auto plain = [&](const Arrays& xy) { return by_operations(call(xy)); };
  mx::array weight = mx::random::normal({100, 7}, mx::random::key(3));
  auto a = mlxx::Vjp(ours, 1).apply({x, y}, {weight});
  auto b = mlxx::Vjp(plain, 1).apply({x, y}, {weight});
  auto close = [](const mx::array& u, const mx::array& v) {
    return mlxx::item_of<bool>(mx::allclose(u, v, 1e-5, 1e-6), "close");
  };
  bool right = close(a.outputs[0], b.outputs[0]) &&
      close(a.cotangents[0], b.cotangents[0]) &&
      close(a.cotangents[1], b.cotangents[1]);

  auto why_not = kernel.missing(mlxx::backend());
  const char* device = mlxx::to_string(mlxx::backend()).data();
  std::printf("%s: %s\n", device, why_not ? why_not->c_str() : "its own code");
  std::printf("values and gradients: %s\n", right ? "right" : "WRONG");
  return right ? 0 : 1;
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 1;
}
