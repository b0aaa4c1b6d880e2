#pragma once

#include <functional>

#include "mlxx/models/decoder_config.h"
#include "mlxx/models/decoder_model.h"

namespace mlxx::models {

// What LFM2 and its variant with experts share.

// The decoder around its layers; every LayerSpec an attention layer's.
DecoderSpec read_lfm2(const DecoderConfig& config);

using MakeNetwork = std::function<std::unique_ptr<nn::FeedForward>(int layer)>;

// Attention where "full_attn_idxs" or "layer_types" says so, else a gated
// convolution; each with its network.
DecoderLayers lfm2_layers(
    const DecoderConfig& config,
    const DecoderSpec& spec,
    const MakeNetwork& make_network);

}  // namespace mlxx::models
