#pragma once

#include <functional>
#include <string_view>

#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/nn/sparse_mlp.h"

namespace mlxx::models {

// Qwen's hybrid decoders (Qwen3-Next, Qwen3.5): gated DeltaNets, and a gated
// attention in every "full_attention_interval"th layer.

// Where the variants differ.
struct GatedDeltaFamily {
  bool packed = false;  // the DeltaNet's projections
  double rope_base = 0;
  bool renormalize = false;  // weights of experts, where no key says it
};

// The decoder around its layers; every LayerSpec an attention layer's.
DecoderSpec read_gated_delta_decoder(
    const DecoderConfig& config,
    const GatedDeltaFamily& family);

// `sparse` says which layers have experts instead of one network.
DecoderLayers gated_delta_layers(
    const DecoderConfig& config,
    const DecoderSpec& spec,
    const GatedDeltaFamily& family,
    const std::function<bool(int layer)>& sparse);

}  // namespace mlxx::models
