#include "mlxx/models/lfm2_layers.h"

#include <algorithm>

#include "mlxx/nn/short_conv_mixer.h"

namespace mlxx::models {
namespace {

std::vector<bool> read_attends(const DecoderConfig& config, int layers) {
  const JsonView& view = config.view();
  std::vector<bool> attends(layers, false);
  constexpr auto kIndices = "full_attn_idxs";
  if (view.has(kIndices)) {
    for (double index : view.numbers_or_empty(kIndices)) {
      if (!(index >= 0 && index < layers)) {
        view.fail_at(
            kIndices,
            fmt::format("names layer {} of {}", index, layers));
      }
      attends[static_cast<size_t>(index)] = true;
    }
  } else {
    auto types = config.layer_types(layers);
    if (types.empty()) {
      view.fail_at("layer_types", "is missing");
    }
    for (int i = 0; i < layers; ++i) {
      attends[i] = types[i] == "full_attention";
      if (!attends[i] && types[i] != "conv") {
        fail(
            ErrorKind::unsupported,
            view.place(),
            "layer type '{}' is not known to lfm2",
            types[i]);
      }
    }
  }
  if (std::ranges::find(attends, true) == attends.end()) {
    view.fail_at("layer_types", "has no full_attention");
  }
  return attends;
}

}  // namespace

DecoderSpec read_lfm2(const DecoderConfig& config) {
  DecoderSpec spec =
      config.decoder({.intermediate_size = "", .norm_eps = "norm_eps"});
  double base = config.view().number_or("rope_theta", 1000000);
  if (config.view().has("rope_parameters")) {
    base =
        config.view().object("rope_parameters").number_or("rope_theta", base);
  }
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    if (layer.hidden_size % layer.heads != 0) {
      config.view().fail_at(
          "num_attention_heads",
          fmt::format("is {}, not a divisor", layer.heads));
    }
    layer.head_size = layer.hidden_size / layer.heads;
    layer.rope = config.plain_rope(layer.head_size, base);
    layer.qk_norm = nn::QkNorm::per_head;
    layer.names.o = "out_proj";
    layer.names.q_norm = "q_layernorm";
    layer.names.k_norm = "k_layernorm";
  });
  spec.tied = true;
  spec.norm = "model.embedding_norm";
  return spec;
}

DecoderLayers lfm2_layers(
    const DecoderConfig& config,
    const DecoderSpec& spec,
    const MakeNetwork& make_network) {
  auto attends = read_attends(config, static_cast<int>(spec.layers.size()));
  // Its cache holds the inputs before a token.
  auto width = static_cast<int>(config.view().integer("conv_L_cache", 2, 64));
  bool bias = config.view().boolean("conv_bias");
  DecoderLayers layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    const auto& layer = spec.layers[i];
    nn::MixerLayerParts parts;
    if (attends[i]) {
      parts.mixer = std::make_unique<nn::AttentionMixer>(layer);
      parts.mixer_name = "self_attn";
    } else {
      parts.mixer =
          std::make_unique<nn::ShortConvMixer>(spec.hidden_size, width, bias);
      parts.mixer_name = "conv";
    }
    parts.mixer_norm = "operator_norm";
    parts.network = make_network(static_cast<int>(i));
    parts.network_name = "feed_forward";
    parts.network_norm = "ffn_norm";
    layers.push_back(std::make_unique<nn::MixerLayer>(
        nn::MixerLayerOptions{spec.hidden_size, layer.norm},
        std::move(parts)));
  }
  return layers;
}

}  // namespace mlxx::models
