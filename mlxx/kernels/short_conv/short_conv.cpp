#include "mlxx/kernels/short_conv/short_conv.h"

#include "mlxx/base/error.h"
#include "mlxx/kernels/short_conv/short_conv_cpu.h"
#include "mlxx/kernels/short_conv/short_conv_device.h"

namespace mlxx::kernels {
namespace {

void check(bool fits, const char* name, const mx::array& found) {
  if (!fits) {
    fail(
        ErrorKind::invalid_request,
        "short_conv",
        "{} of shape [{}] do not fit",
        name,
        fmt::join(found.shape(), ", "));
  }
}

void check_shapes(const ShortConvInputs& in) {
  const auto& x = in.x;
  const auto& w = in.weight;
  check(x.ndim() == 3 && x.size() > 0, "inputs", x);
  check(
      w.ndim() == 3 && w.shape(0) == x.shape(2) && w.shape(1) >= 2 &&
          w.shape(2) == 1,
      "weights",
      w);
  if (in.bias) {
    check(in.bias->shape() == mx::Shape{x.shape(2)}, "biases", *in.bias);
  }
  if (in.state) {
    check(
        in.state->shape() == mx::Shape{x.shape(0), w.shape(1) - 1, x.shape(2)},
        "numbers of the state",
        *in.state);
  }
  if (in.lengths) {
    check(in.lengths->shape() == mx::Shape{x.shape(0)}, "lengths", *in.lengths);
  }
}

std::vector<mx::array> plain_silu(const std::vector<mx::array>& in) {
  return {mx::multiply(in[0], mx::sigmoid(in[0]))};
}

}  // namespace

StatefulResult plain_short_conv(const ShortConvInputs& in) {
  int L = in.x.shape(1);
  int kept = in.weight.shape(1) - 1;
  mx::array padded = mx::concatenate({*in.state, in.x}, 1);
  mx::array state = padded;
  if (in.lengths) {
    mx::Dtype dtype = in.lengths->dtype();
    mx::array ends =
        mx::clip(*in.lengths, mx::array(0, dtype), mx::array(L, dtype));
    mx::array at = mx::add(mx::expand_dims(ends, 1), mx::arange(kept, dtype));
    state = mx::take_along_axis(padded, mx::expand_dims(at, 2), 1);
  } else {
    state = mx::contiguous(mx::slice(
        padded,
        {0, L, 0},
        {padded.shape(0), L + kept, padded.shape(2)}));
  }
  mx::array y = mx::conv1d(padded, in.weight, 1, 0, 1, in.x.shape(2));
  if (in.bias) {
    y = mx::add(y, *in.bias);
  }
  if (in.silu) {
    // Compiled as in mlx-lm: on a GPU a fused kernel rounds differently.
    static const auto compiled = mx::compile(plain_silu, /* shapeless= */ true);
    y = compiled({y})[0];
  }
  return {y, state};
}

StatefulResult short_conv(
    const ShortConvInputs& inputs,
    const Selection& selection) {
  check_shapes(inputs);
  ShortConvInputs in = inputs;
  if (!in.state) {
    in.state = mx::zeros(
        {in.x.shape(0), in.weight.shape(1) - 1, in.x.shape(2)},
        in.x.dtype());
  }
  if (covers_device_short_conv(in, selection)) {
    return device_short_conv(in);
  }
  return covers_short_conv(in, selection) ? cpu_short_conv(in, selection)
                                          : plain_short_conv(in);
}

}  // namespace mlxx::kernels
