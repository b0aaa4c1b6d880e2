#include "mlxx/kernels/short_conv/short_conv_device.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/short_conv/short_conv_cpu.h"
#include "mlxx/kernels/short_conv/short_conv_pass_text.h"

namespace mlxx::kernels {
namespace {

constexpr int kThreads = 128;
constexpr int kWidest = 8;
constexpr int kLongest = 65535 - kWidest;  // what a grid holds in y

// Which of the optional parts a call has.
struct Parts {
  bool biased;
  bool silu;
  bool padded;
};

CustomKernel make_kernel(const Parts& parts) {
  return CustomKernel({
      .name = "mlxx_short_conv",
      .input_names = {"x", "weight", "bias", "state", "lengths"},
      .output_names = {"y", "new_state"},
      .cuda =
          DeviceKernelSource{
              .source = R"(
  mlxx_short_conv::pass<T, W, BIASED, SILU, PADDED>(
      x, weight, bias, state, lengths, x_shape[1], x_shape[2], y, new_state);
)",
              .header = kShortConvPassText},
      .fallback =
          [parts](const CustomKernelCall& call) {
            const auto& in = call.inputs;
            auto result = plain_short_conv(
                {in[0],
                 in[1],
                 parts.biased ? std::optional(in[2]) : std::nullopt,
                 parts.silu,
                 in[3],
                 parts.padded ? std::optional(in[4]) : std::nullopt});
            return std::vector<mx::array>{result.out, result.state};
          },
  });
}

const CustomKernel& kernel_for(const Parts& parts) {
  static const auto kernels = [] {
    std::vector<CustomKernel> all;
    for (int i = 0; i < 8; ++i) {
      all.push_back(make_kernel({(i & 1) != 0, (i & 2) != 0, (i & 4) != 0}));
    }
    return all;
  }();
  return kernels
      [(parts.biased ? 1 : 0) + (parts.silu ? 2 : 0) + (parts.padded ? 4 : 0)];
}

}  // namespace

bool covers_device_short_conv(
    const ShortConvInputs& in,
    const Selection& selection) {
  return !selection.fallback && backend() == Backend::cuda &&
      in.weight.dtype() == in.x.dtype() && in.state &&
      in.state->dtype() == in.x.dtype() &&
      (!in.bias || in.bias->dtype() == in.x.dtype()) &&
      in.weight.shape(1) <= kWidest && in.x.shape(1) <= kLongest &&
      in.x.shape(0) <= 65535;
}

StatefulResult device_short_conv(const ShortConvInputs& in) {
  Parts parts{in.bias.has_value(), in.silu, in.lengths.has_value()};
  int kept = in.weight.shape(1) - 1;
  mx::Shape state{in.x.shape(0), kept, in.x.shape(2)};
  auto outputs = kernel_for(parts)(
      {.inputs =
           {in.x,
            in.weight,
            in.bias ? *in.bias : in.weight,
            *in.state,
            in.lengths ? mx::astype(*in.lengths, mx::int32) : mx::array(0)},
       .output_shapes = {in.x.shape(), state},
       .output_dtypes = {in.x.dtype(), in.x.dtype()},
       .template_values =
           {{"T", in.x.dtype()},
            {"W", kept + 1},
            {"BIASED", parts.biased},
            {"SILU", parts.silu},
            {"PADDED", parts.padded}},
       .grid =
           {(in.x.shape(2) + kThreads - 1) / kThreads * kThreads,
            in.x.shape(1) + kept,
            in.x.shape(0)},
       .threadgroup = {kThreads}});
  return {outputs[0], outputs[1]};
}

}  // namespace mlxx::kernels
