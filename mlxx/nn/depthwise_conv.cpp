#include "mlxx/nn/depthwise_conv.h"

#include "mlxx/kernels/short_conv/short_conv.h"

namespace mlxx::nn {

DepthwiseConv::DepthwiseConv(int channels, int width, bool bias, bool silu)
    : weight_({channels, width, 1}, Parameter::Kind::tensor), silu_(silu) {
  if (bias) {
    bias_.emplace(mx::Shape{channels}, Parameter::Kind::tensor);
  }
}

mx::array DepthwiseConv::operator()(
    const mx::array& x,
    cache::RecurrentCache& cache,
    int slot) const {
  kernels::ShortConvInputs in{
      x,
      weight_.value(),
      std::nullopt,
      silu_,
      cache.slot(slot),
      std::nullopt};
  if (auto mask = cache.mask(x.shape(1))) {
    in.x = mx::where(
        mx::expand_dims(*mask, 2),
        in.x,
        mx::array(0.0f, in.x.dtype()));
  }
  if (bias_) {
    in.bias = bias_->value();
  }
  auto result = kernels::short_conv(in, selection_);
  cache.set(slot, result.state);
  return result.out;
}

void DepthwiseConv::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  visitor(prefix + ".weight", weight_);
  if (bias_) {
    visitor(prefix + ".bias", *bias_);
  }
}

}  // namespace mlxx::nn
