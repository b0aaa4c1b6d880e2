#include "mlxx/nn/short_conv_mixer.h"

namespace mlxx::nn {

ShortConvMixer::ShortConvMixer(int hidden_size, int width, bool bias)
    : in_proj_(hidden_size, 3 * hidden_size, bias),
      conv_(hidden_size, width, bias, /* silu= */ false),
      out_proj_(hidden_size, hidden_size, bias) {}

mx::array ShortConvMixer::operator()(
    const mx::array& x,
    const kernels::AttentionMask&,
    cache::LayerCache& cache) const {
  auto& recurrent = cache::cache_as<cache::RecurrentCache>(cache);
  auto parts = mx::split(in_proj_(x), 3, -1);
  mx::array y = conv_(mx::multiply(parts[0], parts[2]), recurrent, 0);
  recurrent.advance(x.shape(1));
  return out_proj_(mx::multiply(parts[1], y));
}

void ShortConvMixer::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  in_proj_.visit(prefix + ".in_proj", visitor);
  conv_.visit(prefix + ".conv", visitor);
  out_proj_.visit(prefix + ".out_proj", visitor);
}

}  // namespace mlxx::nn
