#pragma once

#include <optional>

#include "mlxx/models/decoder_spec.h"
#include "mlxx/models/model.h"
#include "mlxx/nn/embedding.h"
#include "mlxx/nn/linear.h"

namespace mlxx::models {

// What stands around the layers of every decoder.

// The summary of a model of this spec.
ModelSummary
summary_of(const Model& model, const DecoderSpec& spec, size_t layers);

// h [B, L, E] -> that of the last position, [B, 1, E].
mx::array last_position(const mx::array& h);

// The logits of normed h [B, L, E], with the spec's multipliers and cap:
// [B, L, V]. Without a head: the embedding is it.
mx::array logits_of(
    const mx::array& h,
    const DecoderSpec& spec,
    const std::optional<nn::Linear>& head,
    const nn::Embedding& embedding);

}  // namespace mlxx::models
