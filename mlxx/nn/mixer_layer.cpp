#include "mlxx/nn/mixer_layer.h"

#include "mlxx/cache/recurrent.h"

namespace mlxx::nn {

MixerLayer::MixerLayer(const MixerLayerOptions& options, MixerLayerParts parts)
    : parts_(std::move(parts)),
      norm_(options.norm),
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
  return add_network(h);
}

std::optional<LayerSpec> MixerLayer::attention_half() const {
  const auto* attention = dynamic_cast<AttentionMixer*>(parts_.mixer.get());
  if (!attention || attention->spec().norm != norm_) {
    return std::nullopt;
  }
  LayerSpec spec = attention->spec();
  spec.names.attention = parts_.mixer_name;
  spec.names.before_attention = parts_.mixer_norm;
  spec.names.after_attention.clear();
  spec.residual_multiplier = residual_multiplier_;
  return spec;
}

mx::array MixerLayer::add_network(const mx::array& h) const {
  if (!parts_.network) {
    return h;
  }
  return add_residual(
      h,
      (*parts_.network)((*network_norm_)(h)),
      residual_multiplier_);
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
