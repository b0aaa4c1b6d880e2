// How a decoder is trained: part by part, whole texts, without caches.
#include <algorithm>

#include "mlxx/base/error.h"
#include "mlxx/models/decoder_ends.h"
#include "mlxx/models/decoder_model.h"
#include "mlxx/models/layer_caches.h"
#include "mlxx/nn/training_rows.h"

namespace mlxx::models {

int DecoderModel::layer_count() const {
  return static_cast<int>(layers_.size());
}

mx::array DecoderModel::embedded(const mx::array& tokens) const {
  mx::array h = multiplied_embedding(tokens);
  if (!positions_) {
    return h;
  }
  static const nn::TrainingRows kWhole;
  const auto* rows = nn::training_rows();
  mx::array positions = (rows ? *rows : kWhole).positions(tokens.shape(1));
  int longest = mx::max(positions).item<int>() + 1;
  if (longest > spec_.learned_positions) {
    fail(
        ErrorKind::invalid_request,
        spec_.model_type,
        "position {} is past the {} that this model has",
        longest,
        spec_.learned_positions);
  }
  return mx::add(h, (*positions_)(positions));
}

mx::array DecoderModel::layer_output(int index, const mx::array& h) const {
  const auto& layer = layers_.at(index);
  auto cache = make_layer_cache(layer->state(), {.per_layer = true});
  kernels::AttentionMask mask;
  if (const auto* kv = dynamic_cast<const cache::KVCache*>(cache.get())) {
    if (!layer->takes_packed_rows()) {
      mask = kv->make_mask(h.shape(1));
    }
  }
  return (*layer)(h, mask, *cache);
}

mx::array DecoderModel::normed(const mx::array& h) const {
  return norm_(h);
}

mx::array DecoderModel::logits(const mx::array& normed) const {
  return head(normed);
}

HeadParts DecoderModel::head_parts() const {
  HeadParts parts{
      lm_head_ ? &lm_head_->weight() : &embed_tokens_.weight(),
      lm_head_ && lm_head_->bias() ? &*lm_head_->bias() : nullptr};
  parts.input_divisor = spec_.head_input_divisor;
  parts.multiplier = spec_.logits_multiplier;
  parts.divisor = spec_.logits_divisor;
  parts.softcap = spec_.final_softcap;
  parts.tied = !lm_head_;
  parts.selection = selection_;
  return parts;
}

bool DecoderModel::takes_packed_rows() const {
  return std::ranges::all_of(layers_, [](const auto& layer) {
    return layer->takes_packed_rows();
  });
}

}  // namespace mlxx::models
