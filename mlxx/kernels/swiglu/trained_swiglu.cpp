#include "mlxx/kernels/swiglu/trained_swiglu.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/swiglu/swiglu.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Numbers of one thread.
constexpr int kEach = 4;
constexpr int kThreads = 256;

// Around what is done to number i.
std::string cuda_loop(const char* body) {
  return fmt::format(
      R"(
  long long first = (long long)blockIdx.x * blockDim.x * {0} + threadIdx.x;
  #pragma unroll
  for (int k = 0; k < {0}; ++k) {{
    long long i = first + (long long)k * blockDim.x;
    if (i < gate_shape[0]) {{
{1}
    }}
  }}
)",
      kEach,
      body);
}

std::string metal_loop(const char* body) {
  return fmt::format(
      R"(
  for (uint k = 0; k < {0}; ++k) {{
    uint i = thread_position_in_grid.x * {0} + k;
    if (i < uint(gate_shape[0])) {{
{1}
    }}
  }}
)",
      kEach,
      body);
}

constexpr auto kForward = R"(
      float g = float(gate[i]);
      y[i] = T(g / (1.0f + EXP(-g)) * float(up[i]));)";

constexpr auto kBackward = R"(
      float g = float(gate[i]);
      float s = 1.0f / (1.0f + EXP(-g));
      float c = float(d[i]);
      d_up[i] = T(c * g * s);
      d_gate[i] = T(c * float(up[i]) * s * (1.0f + g * (1.0f - s)));)";

constexpr auto kCudaExp = "#define EXP __expf\n";
constexpr auto kMetalExp = "#define EXP metal::fast::exp\n";

// gate, up, cotangent
Arrays plain_gradient(const Arrays& x) {
  mx::array s = mx::sigmoid(x[0]);
  mx::array one(1.0f, x[0].dtype());
  mx::array slope =
      mx::multiply(s, mx::add(one, mx::multiply(x[0], mx::subtract(one, s))));
  return {
      mx::multiply(mx::multiply(x[2], x[1]), slope),
      mx::multiply(mx::multiply(x[2], x[0]), s)};
}

CustomKernelCall call_of(Arrays inputs, int outputs) {
  const mx::array& x = inputs[0];
  int threads = (x.shape(0) + kEach - 1) / kEach;
  CustomKernelCall call;
  call.output_shapes.assign(outputs, x.shape());
  call.output_dtypes.assign(outputs, x.dtype());
  call.template_values = {{"T", x.dtype()}};
  call.grid = {(threads + kThreads - 1) / kThreads * kThreads, 1, 1};
  call.threadgroup = {kThreads, 1, 1};
  call.inputs = std::move(inputs);
  return call;
}

CustomKernel backward_kernel() {
  return CustomKernel(
      {.name = "mlxx_swiglu_gradient",
       .input_names = {"gate", "up", "d"},
       .output_names = {"d_gate", "d_up"},
       .metal =
           DeviceKernelSource{
               .source = metal_loop(kBackward),
               .header = kMetalExp},
       .cuda =
           DeviceKernelSource{
               .source = cuda_loop(kBackward),
               .header = kCudaExp},
       .fallback = [](const CustomKernelCall& call) {
         return plain_gradient(call.inputs);
       }});
}

CustomKernel forward_kernel() {
  return CustomKernel(
      {.name = "mlxx_swiglu",
       .input_names = {"gate", "up"},
       .output_names = {"y"},
       .metal =
           DeviceKernelSource{
               .source = metal_loop(kForward),
               .header = kMetalExp},
       .cuda =
           DeviceKernelSource{
               .source = cuda_loop(kForward),
               .header = kCudaExp},
       .fallback =
           [](const CustomKernelCall& call) {
             const auto& gate = call.inputs[0];
             return Arrays{mx::multiply(
                 mx::multiply(gate, mx::sigmoid(gate)),
                 call.inputs[1])};
           },
       .gradient =
           [](const CustomKernelCall& call,
              const Arrays& cotangents,
              const Arrays&) {
             static const CustomKernel kernel = backward_kernel();
             return kernel(
                 call_of({call.inputs[0], call.inputs[1], cotangents[0]}, 2));
           }});
}

}  // namespace

mx::array trained_swiglu(
    const mx::array& gate,
    const mx::array& up,
    const Selection& selection) {
  if (backend() == Backend::cpu || selection.fallback ||
      gate.dtype() != up.dtype() || gate.shape() != up.shape() ||
      gate.size() == 0) {
    return swiglu(gate, up, selection);
  }
  static const CustomKernel kernel = forward_kernel();
  mx::array y = kernel(call_of({mx::flatten(gate), mx::flatten(up)}, 1))[0];
  return mx::reshape(y, gate.shape());
}

}  // namespace mlxx::kernels
