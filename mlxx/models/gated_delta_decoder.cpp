#include "mlxx/models/gated_delta_decoder.h"

#include "mlxx/nn/gated_attention.h"
#include "mlxx/nn/gated_delta_net.h"

namespace mlxx::models {
namespace {

// The first part of each head that is rotated; transformers 5 has moved the
// key into rope_parameters.
int read_rotated(const DecoderConfig& config, int head_size) {
  constexpr auto kKey = "partial_rotary_factor";
  constexpr double kUsual = 0.25;
  const JsonView& view = config.view();
  double factor = view.has("rope_parameters")
      ? view.object("rope_parameters").number_or(kKey, kUsual)
      : kUsual;
  return config.rotated(head_size, factor);
}

nn::GatedDeltaSpec
read_delta(const DecoderConfig& config, const DecoderSpec& spec, bool packed) {
  nn::GatedDeltaSpec delta;
  delta.hidden_size = spec.hidden_size;
  delta.key_heads = config.size("linear_num_key_heads");
  delta.value_heads = config.size("linear_num_value_heads");
  delta.key_size = config.size("linear_key_head_dim");
  delta.value_size = config.size("linear_value_head_dim");
  delta.conv_width = static_cast<int>(
      config.view().integer_or("linear_conv_kernel_dim", 4, 2, 64));
  delta.norm_eps = spec.final_norm.eps;
  delta.packed = packed;
  constexpr auto kValueHeads = "linear_num_value_heads";
  if (delta.value_heads % delta.key_heads != 0) {
    config.view().fail_at(
        kValueHeads,
        fmt::format(
            "is {}, no multiple of {} key heads",
            delta.value_heads,
            delta.key_heads));
  }
  constexpr int64_t kMostChannels = 1 << 24;
  int64_t channels = 2 * int64_t{delta.key_heads} * delta.key_size +
      2 * int64_t{delta.value_heads} * delta.value_size;
  if (channels > kMostChannels) {
    config.view().fail_at(
        kValueHeads,
        fmt::format("and the other sizes make {} channels", channels));
  }
  return delta;
}

nn::SparseMlpSpec read_experts(
    const DecoderConfig& config,
    const DecoderSpec& spec,
    const GatedDeltaFamily& family) {
  nn::SparseMlpSpec sparse;
  sparse.experts = {
      .experts = config.size("num_experts"),
      .hidden_size = spec.hidden_size,
      .intermediate_size = config.size("moe_intermediate_size")};
  auto top_k = static_cast<int>(
      config.view().integer("num_experts_per_tok", 1, sparse.experts.experts));
  bool renormalize = config.flag_or("norm_topk_prob", family.renormalize);
  sparse.route = [=](const nn::RouterInput& in) {
    return nn::softmax_then_top_k(
        in.logits,
        top_k,
        nn::TopK::last,
        renormalize);
  };
  sparse.shared = nn::SharedExpert::gated;
  sparse.shared_size = config.size("shared_expert_intermediate_size");
  sparse.shared_name = "shared_expert";
  return sparse;
}

}  // namespace

DecoderSpec read_gated_delta_decoder(
    const DecoderConfig& config,
    const GatedDeltaFamily& family) {
  config.require_activation({"silu"});
  DecoderSpec spec = config.decoder({.intermediate_size = ""});
  int head_size = spec.layers.front().head_size;
  auto rope = config.rope(read_rotated(config, head_size), family.rope_base);
  bool bias = config.flag_or("attention_bias", false);
  spec.for_each_layer([&](nn::LayerSpec& layer, int) {
    layer.rope = rope;
    layer.qkv_bias = bias;
    layer.output_bias = bias;
  });
  return spec;
}

DecoderLayers gated_delta_layers(
    const DecoderConfig& config,
    const DecoderSpec& spec,
    const GatedDeltaFamily& family,
    const std::function<bool(int layer)>& sparse) {
  auto interval = config.size_or("full_attention_interval", 4);
  auto delta = read_delta(config, spec, family.packed);
  DecoderLayers layers;
  for (size_t i = 0; i < spec.layers.size(); ++i) {
    auto index = static_cast<int>(i);
    nn::LayerSpec layer = spec.layers[i];
    nn::MixerLayerParts parts;
    if ((index + 1) % interval == 0) {
      parts.mixer = std::make_unique<nn::GatedAttention>(layer);
      parts.mixer_name = "self_attn";
    } else {
      parts.mixer = std::make_unique<nn::GatedDeltaNet>(delta);
      parts.mixer_name = "linear_attn";
    }
    parts.mixer_norm = "input_layernorm";
    if (sparse(index)) {
      parts.network =
          std::make_unique<nn::SparseMlp>(read_experts(config, spec, family));
    } else {
      layer.intermediate_size = config.size("intermediate_size");
      parts.network = std::make_unique<nn::MlpNetwork>(layer);
    }
    parts.network_name = "mlp";
    parts.network_norm = "post_attention_layernorm";
    layers.push_back(std::make_unique<nn::MixerLayer>(
        nn::MixerLayerOptions{spec.hidden_size, layer.norm},
        std::move(parts)));
  }
  return layers;
}

}  // namespace mlxx::models
