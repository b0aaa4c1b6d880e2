#include "mlxx/nn/mixer_layer.h"

#include "mlxx/cache/recurrent.h"

namespace mlxx::nn {

MixerLayer::MixerLayer(const MixerLayerOptions& options, MixerLayerParts parts)
    : parts_(std::move(parts)),
      residual_multiplier_(options.residual_multiplier) {
  if (parts_.mixer) {
    mixer_norm_.emplace(options.hidden_size, options.norm);
  }
  if (parts_.network) {
    network_norm_.emplace(options.hidden_size, options.norm);
  }
}

StateSpec MixerLayer::state() const {
  return parts_.mixer ? parts_.mixer->state()
                      : StateSpec{.kind = StateSpec::Kind::recurrent};
}

mx::array MixerLayer::operator()(
    const mx::array& x,
    const kernels::AttentionMask& mask,
    cache::LayerCache& cache) const {
  mx::array h = x;
  if (parts_.mixer) {
    h = add_residual(
        h,
        (*parts_.mixer)((*mixer_norm_)(h), mask, cache),
        residual_multiplier_);
  } else {
    cache::cache_as<cache::RecurrentCache>(cache).advance(x.shape(1));
  }
  if (parts_.network) {
    h = add_residual(
        h,
        (*parts_.network)((*network_norm_)(h)),
        residual_multiplier_);
  }
  return h;
}

void MixerLayer::visit(
    const std::string& prefix,
    const ParameterVisitor& visitor) {
  if (parts_.mixer) {
    mixer_norm_->visit(prefix + "." + parts_.mixer_norm, visitor);
    parts_.mixer->visit(prefix + "." + parts_.mixer_name, visitor);
  }
  if (parts_.network) {
    network_norm_->visit(prefix + "." + parts_.network_norm, visitor);
    // A network of several parts lies in the layer itself.
    parts_.network->visit(
        parts_.network_name.empty() ? prefix
                                    : prefix + "." + parts_.network_name,
        visitor);
  }
}

void MixerLayer::use(const kernels::Selection& selection) {
  if (parts_.mixer) {
    mixer_norm_->use(selection);
    parts_.mixer->use(selection);
  }
  if (parts_.network) {
    network_norm_->use(selection);
    parts_.network->use(selection);
  }
}

}  // namespace mlxx::nn
