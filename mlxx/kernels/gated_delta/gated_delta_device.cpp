#include "mlxx/kernels/gated_delta/gated_delta_device.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/gated_delta/gated_delta_cpu.h"
#include "mlxx/kernels/gated_delta/gated_delta_scan_text.h"

namespace mlxx::kernels {
namespace {

constexpr int kRows = 4;   // of the state, of a warp
constexpr int kWarps = 4;  // of a block
constexpr int kLargestHead = 256;

CustomKernel make_kernel(bool masked) {
  return CustomKernel({
      .name = "mlxx_gated_delta",
      .input_names = {"q", "k", "v", "decay", "beta", "state", "mask"},
      .output_names = {"y", "new_state"},
      .cuda =
          DeviceKernelSource{
              .source = R"(
  mlxx_gated_delta::scan<T, DK, DV, ROWS, PER_KEY, MASKED>(
      q, k, v, decay, beta, state, mask,
      {q_shape[1], q_shape[2], v_shape[2]}, y, new_state);
)",
              .header = kGatedDeltaScanText},
      .fallback =
          [masked](const CustomKernelCall& call) {
            const auto& in = call.inputs;
            auto result = plain_gated_delta(
                {in[0],
                 in[1],
                 in[2],
                 in[3],
                 in[4],
                 in[5],
                 masked ? std::optional(in[6]) : std::nullopt});
            return std::vector<mx::array>{result.out, result.state};
          },
  });
}

}  // namespace

bool covers_device_gated_delta(
    const GatedDeltaInputs& in,
    const Selection& selection) {
  return !selection.fallback && backend() == Backend::cuda &&
      in.keys.dtype() == in.queries.dtype() &&
      in.values.dtype() == in.queries.dtype() &&
      in.queries.shape(3) <= kLargestHead && in.state &&
      in.state->dtype() == mx::float32;
}

StatefulResult device_gated_delta(const GatedDeltaInputs& in) {
  static const CustomKernel masked = make_kernel(true);
  static const CustomKernel unmasked = make_kernel(false);
  const mx::array& v = in.values;
  int warps = (v.shape(3) + kRows - 1) / kRows;
  int across = (warps + kWarps - 1) / kWarps;
  auto outputs = (in.mask ? masked : unmasked)(
      {.inputs =
           {in.queries,
            in.keys,
            v,
            mx::astype(in.decays, mx::float32),
            mx::astype(in.betas, mx::float32),
            *in.state,
            in.mask ? *in.mask : mx::array(true)},
       .output_shapes = {v.shape(), in.state->shape()},
       .output_dtypes = {in.queries.dtype(), mx::float32},
       .template_values =
           {{"T", in.queries.dtype()},
            {"DK", in.queries.shape(3)},
            {"DV", v.shape(3)},
            {"ROWS", kRows},
            {"PER_KEY", in.decays.ndim() == 4},
            {"MASKED", in.mask.has_value()}},
       .grid = {across * kWarps * 32, v.shape(0) * v.shape(2)},
       .threadgroup = {kWarps * 32}});
  return {outputs[0], outputs[1]};
}

}  // namespace mlxx::kernels
