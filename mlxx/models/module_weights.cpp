#include "mlxx/models/module_weights.h"

#include <algorithm>

namespace mlxx::models {

std::vector<float> ModuleWeights::vector(
    const std::string& name,
    bool plus_one) {
  const Parameter* parameter = take(name);
  if (!parameter) {
    return {};
  }
  mx::array values = parameter->value();
  if (plus_one) {
    values = mx::add(mx::array(1.0f, values.dtype()), values);
  }
  values = mx::contiguous(mx::astype(values, mx::float32));
  mx::eval(values);
  return {values.data<float>(), values.data<float>() + values.size()};
}

std::shared_ptr<const kernels::PanelMatrix> ModuleWeights::matrix(
    const std::string& name) {
  const Parameter* parameter = take(name);
  const auto* panels = parameter
      ? dynamic_cast<const kernels::PackedPanels*>(parameter->packed().get())
      : nullptr;
  if (!panels) {
    unpacked_ = name;
    return nullptr;
  }
  return panels->matrix();
}

kernels::PanelLinear ModuleWeights::linear(const std::string& name) {
  return {matrix(name + ".weight"), vector(name + ".bias")};
}

kernels::NormWeights ModuleWeights::norm(
    const std::string& prefix,
    const nn::NormSpec& spec) {
  using Kind = nn::NormSpec::Kind;
  bool plus_one =
      spec.kind == Kind::rms_plus_one || spec.kind == Kind::layer_plus_one;
  bool rms = spec.kind == Kind::rms || spec.kind == Kind::rms_plus_one;
  return {
      .kind = rms ? kernels::NormWeights::Kind::rms
                  : kernels::NormWeights::Kind::layer,
      .eps = spec.eps,
      .weight = vector(prefix + "weight", plus_one),
      .bias = vector(prefix + "bias")};
}

void ModuleWeights::keep(const std::vector<std::string>& names) {
  std::erase_if(all_, [&](const auto& entry) {
    return std::ranges::none_of(names, [&](const auto& name) {
      return !name.empty() && entry.first.starts_with(name + ".");
    });
  });
}

std::string ModuleWeights::problem() const {
  if (!unpacked_.empty()) {
    return fmt::format("{} is not packed", unpacked_);
  }
  if (!all_.empty()) {
    return fmt::format("{} has no place in it", all_.begin()->first);
  }
  return {};
}

const Parameter* ModuleWeights::take(const std::string& name) {
  auto node = all_.extract(name);
  return node ? node.mapped() : nullptr;
}

namespace {

kernels::HeadNorm
head_norm(ModuleWeights& parameters, bool of_keys, const nn::LayerSpec& spec) {
  const nn::LayerNames& names = spec.names;
  const std::string prefix = names.attention + ".";
  switch (spec.qk_norm) {
    case nn::QkNorm::none:
      break;
    case nn::QkNorm::per_head:
    case nn::QkNorm::whole_width:
      return {
          parameters.norm(
              prefix + (of_keys ? names.k_norm : names.q_norm) + ".",
              spec.norm),
          spec.qk_norm == nn::QkNorm::whole_width};
    case nn::QkNorm::layer_per_head: {
      nn::NormSpec layer{.kind = nn::NormSpec::Kind::layer};
      layer.eps = spec.norm.eps;
      return {parameters.norm(
          prefix + (of_keys ? "k_layernorm." : "q_layernorm."),
          layer)};
    }
  }
  return {};
}

// Sets the layer's table, one per kind of rope; empty, or why there is none.
std::string set_rotation(
    const nn::Rope* rope,
    kernels::DecoderWeights& weights,
    kernels::DecoderLayerWeights& layer) {
  layer.rotation = -1;
  if (!rope) {
    return {};
  }
  auto rotations = rope->rotations();
  if (!rotations) {
    return fmt::format("rope '{}' depends on the length", rope->name());
  }
  kernels::RotationTable table{
      std::move(rotations->per_position),
      rotations->scale,
      rotations->pairs};
  auto found = std::ranges::find(weights.rotations, table);
  layer.rotation = static_cast<int>(found - weights.rotations.begin());
  if (found == weights.rotations.end()) {
    weights.rotations.push_back(std::move(table));
  }
  return {};
}

kernels::NormWeights norm_named(
    ModuleWeights& parameters,
    const std::string& name,
    const nn::LayerSpec& spec) {
  return name.empty() ? kernels::NormWeights{}
                      : parameters.norm(name + ".", spec.norm);
}

void take_attention(
    ModuleWeights& parameters,
    const nn::LayerSpec& spec,
    kernels::DecoderLayerWeights& layer) {
  const nn::LayerNames& names = spec.names;
  auto projection = [&](const std::string& name) {
    return parameters.linear(names.attention + "." + name);
  };
  layer.before_attention = norm_named(parameters, names.before_attention, spec);
  layer.q = projection(names.q);
  layer.k = projection(names.k);
  layer.v = projection(names.v);
  layer.o = projection(names.o);
  layer.q_norm = head_norm(parameters, false, spec);
  layer.k_norm = head_norm(parameters, true, spec);
  layer.query_scale = {spec.query_scale.beta, spec.query_scale.original_length};
  layer.attention_scale = spec.attention_scale;
  layer.softcap = spec.softcap;
  if (spec.sinks) {
    layer.sinks = parameters.vector(names.attention + ".sinks");
  }
  layer.window = spec.window;
  layer.after_attention = norm_named(parameters, names.after_attention, spec);
  layer.residual_multiplier = spec.residual_multiplier;
}

void take_network(
    ModuleWeights& parameters,
    const nn::LayerSpec& spec,
    kernels::DecoderLayerWeights& layer) {
  const nn::LayerNames& names = spec.names;
  layer.parallel = spec.parallel;
  layer.before_mlp = spec.parallel
      ? layer.before_attention
      : norm_named(parameters, names.before_mlp, spec);
  if (!names.gate.empty()) {
    layer.gate = parameters.linear(names.mlp + "." + names.gate);
  }
  layer.up = parameters.linear(names.mlp + "." + names.up);
  layer.down = parameters.linear(names.mlp + "." + names.down);
  layer.activation = spec.activation;
  layer.after_mlp = norm_named(parameters, names.after_mlp, spec);
}

}  // namespace

std::string add_layer(
    nn::TransformerBlock& block,
    kernels::DecoderWeights& weights) {
  if (!block.has_mlp()) {
    return "its network is not an MLP";
  }
  const nn::LayerSpec& spec = block.spec();
  kernels::DecoderLayerWeights layer;
  std::string problem = set_rotation(spec.rope.get(), weights, layer);
  if (!problem.empty()) {
    return problem;
  }
  ModuleWeights parameters(block);
  take_attention(parameters, spec, layer);
  take_network(parameters, spec, layer);
  weights.layers.push_back(std::move(layer));
  return parameters.problem();
}

std::string add_attention_half(
    nn::DecoderLayer& half,
    kernels::DecoderWeights& weights) {
  auto spec = half.attention_half();
  if (!spec) {
    return "its first half is not plain attention";
  }
  kernels::DecoderLayerWeights layer;
  std::string problem = set_rotation(spec->rope.get(), weights, layer);
  if (!problem.empty()) {
    return problem;
  }
  ModuleWeights parameters(half);
  const nn::LayerNames& names = spec->names;
  parameters.keep(
      {names.attention, names.before_attention, names.after_attention});
  take_attention(parameters, *spec, layer);
  weights.layers.push_back(std::move(layer));
  return parameters.problem();
}

}  // namespace mlxx::models
