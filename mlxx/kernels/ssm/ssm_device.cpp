#include "mlxx/kernels/ssm/ssm_device.h"

#include "mlxx/core/custom_kernel.h"
#include "mlxx/core/device.h"
#include "mlxx/kernels/ssm/ssm_scan_text.h"

namespace mlxx::kernels {
namespace {

constexpr int kRows = 4;   // of the state, of a warp
constexpr int kWarps = 4;  // of a block
constexpr int kLargestState = 256;

// What the kernel is given of SsmInputs: x, -exp(a_log), b, c, d, dt after bias
// and softplus, state, mask. Plain operations with the kernel's result.
std::vector<mx::array> plain_scan(
    const std::vector<mx::array>& in,
    bool masked) {
  int tokens = in[0].shape(1);
  int repeats = in[0].shape(2) / in[2].shape(2);
  mx::array state = in[6];
  auto at = [](const mx::array& a, int t) {
    mx::Shape from(a.ndim(), 0);
    mx::Shape to = a.shape();
    from[1] = t;
    to[1] = t + 1;
    return mx::squeeze(mx::slice(a, from, to), 1);
  };
  std::vector<mx::array> ys;
  for (int t = 0; t < tokens; ++t) {
    mx::array x = mx::astype(at(in[0], t), mx::float32);
    mx::array b = mx::repeat(mx::astype(at(in[2], t), mx::float32), repeats, 1);
    mx::array c = mx::repeat(mx::astype(at(in[3], t), mx::float32), repeats, 1);
    mx::array dt = at(in[5], t);
    mx::array keep = mx::exp(mx::multiply(dt, in[1]));
    mx::array added = mx::multiply(
        mx::expand_dims(mx::multiply(mx::expand_dims(dt, 2), x), 3),
        mx::expand_dims(b, 2));
    mx::array next =
        mx::add(mx::multiply(mx::expand_dims(keep, {2, 3}), state), added);
    state = masked
        ? mx::where(mx::expand_dims(at(in[7], t), {1, 2, 3}), next, state)
        : next;
    mx::array y = mx::sum(mx::multiply(state, mx::expand_dims(c, 2)), -1);
    y = mx::add(y, mx::multiply(mx::expand_dims(in[4], {0, 2}), x));
    ys.push_back(mx::astype(y, in[0].dtype()));
  }
  return {mx::stack(ys, 1), state};
}

CustomKernel make_kernel(bool masked) {
  return CustomKernel({
      .name = "mlxx_ssm_scan",
      .input_names = {"x", "rate", "b", "c", "d", "steps", "state", "mask"},
      .output_names = {"y", "new_state"},
      .cuda =
          DeviceKernelSource{
              .source = R"(
  mlxx_ssm::scan<T, DH, N, ROWS, MASKED>(
      x, rate, b, c, d, steps, state, mask,
      {x_shape[1], x_shape[2], b_shape[2]}, y, new_state);
)",
              .header = kSsmScanText},
      .fallback =
          [masked](const CustomKernelCall& call) {
            return plain_scan(call.inputs, masked);
          },
  });
}

}  // namespace

bool covers_device_ssm_scan(const SsmInputs& in, const Selection& selection) {
  return !selection.fallback && backend() == Backend::cuda &&
      in.b.dtype() == in.x.dtype() && in.c.dtype() == in.x.dtype() &&
      in.b.shape(3) <= kLargestState &&
      (!in.state || in.state->dtype() == mx::float32);
}

StatefulResult device_ssm_scan(const SsmInputs& in) {
  static const CustomKernel masked = make_kernel(true);
  static const CustomKernel unmasked = make_kernel(false);
  const mx::array& x = in.x;
  int size = x.shape(3);
  int width = in.b.shape(3);
  mx::Shape shape{x.shape(0), x.shape(2), size, width};
  int warps = (size + kRows - 1) / kRows;
  int across = (warps + kWarps - 1) / kWarps;
  mx::array steps = ssm_steps(in.dt, in.dt_bias, in.dt_lowest, in.dt_highest);
  mx::array rate = mx::negative(mx::exp(mx::astype(in.a_log, mx::float32)));
  auto outputs = (in.mask ? masked : unmasked)(
      {.inputs =
           {x,
            rate,
            in.b,
            in.c,
            mx::astype(in.d, mx::float32),
            steps,
            in.state ? *in.state : mx::zeros(shape, mx::float32),
            in.mask ? *in.mask : mx::array(true)},
       .output_shapes = {x.shape(), shape},
       .output_dtypes = {x.dtype(), mx::float32},
       .template_values =
           {{"T", x.dtype()},
            {"DH", size},
            {"N", width},
            {"ROWS", kRows},
            {"MASKED", in.mask.has_value()}},
       .grid = {across * kWarps * 32, x.shape(0) * x.shape(2)},
       .threadgroup = {kWarps * 32}});
  return {outputs[0], outputs[1]};
}

}  // namespace mlxx::kernels
