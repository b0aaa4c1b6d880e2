#include "mlxx/kernels/swiglu/trained_swiglu.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/swiglu/swiglu.h"
#include "mlxx/kernels/swiglu/wide_numbers_text.h"

namespace mlxx::kernels {
namespace {

using Arrays = std::vector<mx::array>;

// Bytes that one thread loads and stores at once.
constexpr int kBytes = 16;
constexpr int kThreads = 256;

// What is done to one number; the names are macros of each device.
constexpr auto kForward = R"(
      float g = float(GATE);
      Y = T(g / (1.0f + EXP(-g)) * float(UP));)";

constexpr auto kBackward = R"(
      float g = float(GATE);
      float s = 1.0f / (1.0f + EXP(-g));
      float c = float(D);
      D_UP = T(c * g * s);
      D_GATE = T(c * float(UP) * s * (1.0f + g * (1.0f - s)));)";

constexpr auto kMetalHeader = R"(
#define EXP metal::fast::exp
#define GATE gate[i]
#define UP up[i]
#define D d[i]
#define Y y[i]
#define D_GATE d_gate[i]
#define D_UP d_up[i]
)";

std::string metal_loop(const char* body) {
  return fmt::format(
      R"(
  for (uint k = 0; k < EACH; ++k) {{
    uint i = thread_position_in_grid.x * EACH + k;
    if (i < uint(gate_shape[0])) {{
{}
    }}
  }}
)",
      body);
}

constexpr auto kCudaHeader = R"(
#define EXP __expf
#define GATE of_gate.x[i]
#define UP of_up.x[i]
#define D of_d.x[i]
#define Y of_y.x[i]
#define D_GATE of_d_gate.x[i]
#define D_UP of_d_up.x[i]
)";

// `inputs` beside gate and up.
std::string cuda_loop(
    const char* body,
    const std::vector<std::string>& inputs,
    const std::vector<std::string>& outputs) {
  std::string text = R"(
  long long count = gate_shape[0];
  long long first = ((long long)blockIdx.x * blockDim.x + threadIdx.x) * EACH;
  if (first >= count) {
    return;
  }
)";
  std::vector<std::string> loaded{"gate", "up"};
  loaded.insert(loaded.end(), inputs.begin(), inputs.end());
  for (const auto& name : loaded) {
    text += fmt::format(
        "  auto of_{0} = mlxx_wide::load<T, EACH>({0}, first, count);\n",
        name);
  }
  for (const auto& name : outputs) {
    text += fmt::format("  mlxx_wide::Numbers<T, EACH> of_{};\n", name);
  }
  text += fmt::format(
      "#pragma unroll\n  for (int i = 0; i < EACH; ++i) {{{}\n  }}\n",
      body);
  for (const auto& name : outputs) {
    text += fmt::format(
        "  mlxx_wide::store<T, EACH>({0}, of_{0}, first, count);\n",
        name);
  }
  return text;
}

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
  int each = kBytes / static_cast<int>(x.itemsize());
  int threads = (x.shape(0) + each - 1) / each;
  CustomKernelCall call;
  call.output_shapes.assign(outputs, x.shape());
  call.output_dtypes.assign(outputs, x.dtype());
  call.template_values = {{"T", x.dtype()}, {"EACH", each}};
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
               .header = kMetalHeader},
       .cuda =
           DeviceKernelSource{
               .source = cuda_loop(kBackward, {"d"}, {"d_gate", "d_up"}),
               .header = std::string(kWideNumbersText) + kCudaHeader},
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
               .header = kMetalHeader},
       .cuda =
           DeviceKernelSource{
               .source = cuda_loop(kForward, {}, {"y"}),
               .header = std::string(kWideNumbersText) + kCudaHeader},
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
