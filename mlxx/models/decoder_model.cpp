#include "mlxx/models/decoder_model.h"

#include <algorithm>

#include "mlxx/base/log.h"
#include "mlxx/cache/joined_rows.h"
#include "mlxx/core/device.h"
#include "mlxx/models/decoder_ends.h"
#include "mlxx/models/layer_caches.h"
#include "mlxx/nn/block.h"

namespace mlxx::models {
namespace {

mx::array number(float value, mx::Dtype dtype) {
  return mx::array(value, dtype);
}

DecoderLayers blocks_of(const DecoderSpec& spec) {
  DecoderLayers layers;
  for (const auto& layer : spec.layers) {
    layers.push_back(std::make_unique<nn::TransformerBlock>(layer));
  }
  return layers;
}

// One mask for all layers of a kind, from the first cache of that kind.
class Masks {
 public:
  const kernels::AttentionMask&
  of(const nn::StateSpec& state, const cache::LayerCache& cache, int length) {
    auto found = std::ranges::find_if(masks_, [&](const auto& entry) {
      return entry.first.first == state.kind &&
          entry.first.second == state.window;
    });
    if (found != masks_.end()) {
      return found->second;
    }
    kernels::AttentionMask mask;
    if (const auto* kv = dynamic_cast<const cache::KVCache*>(&cache)) {
      mask = kv->make_mask(length);
    }
    masks_.push_back({{state.kind, state.window}, std::move(mask)});
    return masks_.back().second;
  }

 private:
  using Key = std::pair<nn::StateSpec::Kind, int>;
  std::vector<std::pair<Key, kernels::AttentionMask>> masks_;
};

}  // namespace

DecoderModel::DecoderModel(DecoderSpec spec)
    : DecoderModel(spec, blocks_of(spec)) {}

DecoderModel::DecoderModel(DecoderSpec spec, DecoderLayers layers)
    : spec_(std::move(spec)),
      embed_tokens_(spec_.vocab_size, spec_.hidden_size),
      layers_(std::move(layers)),
      norm_(spec_.hidden_size, spec_.final_norm) {
  if (spec_.learned_positions > 0) {
    positions_.emplace(spec_.learned_positions, spec_.hidden_size);
  }
  if (!spec_.tied) {
    lm_head_.emplace(spec_.hidden_size, spec_.vocab_size, spec_.head_bias);
  }
}

ModelSummary DecoderModel::summary() const {
  return summary_of(*this, spec_, layers_.size());
}

cache::CacheList DecoderModel::make_cache(const CacheOptions& options) const {
  bool plain = options.per_layer || options.max_kv_size > 0 ||
      !options.left_padding.empty();
  if (fused_ && !plain) {
    return fused_->make_cache();
  }
  if (cuda_ && !plain) {
    return cuda_->make_cache();
  }
  cache::CacheList caches;
  for (size_t i = 0; i < layers_.size(); ++i) {
    bool is_fused = !plain && fused_layers_ && fused_layers_->covers(i);
    caches.push_back(
        is_fused ? fused_layers_->make_cache()
                 : make_layer_cache(layers_[i]->state(), options));
  }
  return caches;
}

mx::array DecoderModel::forward(
    const mx::array& tokens,
    cache::CacheList& cache) const {
  if (fused_ && FusedDecoder::made(cache)) {
    return (*fused_)(tokens, cache, kernels::LogitRows::all);
  }
  if (cuda_ && CudaDecoder::made(cache)) {
    return (*cuda_)(
        tokens,
        cache,
        kernels::LogitRows::all,
        [this](const mx::array& row, cache::CacheList& layers) {
          return forward(row, layers);
        });
  }
  return head(norm_(trunk(tokens, cache)));
}

mx::array DecoderModel::forward_last(
    const mx::array& tokens,
    cache::CacheList& cache) const {
  if (fused_ && FusedDecoder::made(cache)) {
    return (*fused_)(tokens, cache, kernels::LogitRows::last_of_each);
  }
  if (cuda_ && CudaDecoder::made(cache)) {
    return (*cuda_)(
        tokens,
        cache,
        kernels::LogitRows::last_of_each,
        [this](const mx::array& row, cache::CacheList& layers) {
          return forward_last(row, layers);
        });
  }
  mx::array h = last_position(trunk(tokens, cache));
  return mx::squeeze(head(norm_(h)), 1);
}

bool DecoderModel::append_prompts(
    const mx::array& tokens,
    std::span<const int> lengths,
    std::span<cache::CacheList* const> rows) const {
  bool on_cuda =
      cuda_ && std::ranges::all_of(rows, [](const cache::CacheList* row) {
        return CudaDecoder::made(*row);
      });
  if (!on_cuda || rows.size() > kernels::cuda::kMaxRows) {
    return false;
  }
  cache::JoinedRows joined(rows);
  return cuda_->append_prompts(
      tokens,
      lengths,
      joined.caches(),
      [this](const mx::array& batch, cache::CacheList& layers) {
        return forward_last(batch, layers);
      });
}

void DecoderModel::visit(const ParameterVisitor& visitor) {
  embed_tokens_.visit(spec_.embedding, visitor);
  if (positions_) {
    positions_->visit(spec_.positions, visitor);
  }
  for (size_t i = 0; i < layers_.size(); ++i) {
    layers_[i]->visit(fmt::format("{}.{}", spec_.layer_list, i), visitor);
  }
  norm_.visit(spec_.norm, visitor);
  if (lm_head_) {
    lm_head_->visit(spec_.head, visitor);
  }
}

void DecoderModel::use(const kernels::Selection& selection) {
  selection_ = selection;
  for (auto& layer : layers_) {
    layer->use(selection);
  }
  norm_.use(selection);
  std::vector<nn::TransformerBlock*> blocks;  // null: another kind of layer
  for (auto& layer : layers_) {
    blocks.push_back(dynamic_cast<nn::TransformerBlock*>(layer.get()));
  }
  fused_.reset();
  cuda_.reset();
  fused_layers_.reset();
  std::string why = "not every layer is a transformer block";
  if (std::ranges::find(blocks, nullptr) == blocks.end()) {
    FusedDecoder::Parts parts{
        spec_,
        embed_tokens_,
        blocks,
        norm_,
        lm_head_ ? &*lm_head_ : nullptr,
        positions_ ? &*positions_ : nullptr};
    if (backend() == Backend::cuda) {
      cuda_ = CudaDecoder::make(parts, selection, why);
      if (cuda_) {
        use_bfloat16();
      }
    } else {
      fused_ = FusedDecoder::make(parts, selection, why);
    }
  }
  if (!fused_ && !cuda_) {
    log_debug("{}: operations layer by layer, since {}", spec_.model_type, why);
    fused_layers_ = FusedLayers::make(layers_, selection, why);
    if (!fused_layers_) {
      log_debug("{}: no layer as one, since {}", spec_.model_type, why);
    }
  }
}

// The matrices are; where norms and biases are float16, layers would compute
// in float32.
void DecoderModel::use_bfloat16() {
  visit([](const std::string&, Parameter& parameter) {
    if (parameter.is_set() && !parameter.packed() &&
        !parameter.quantization() && parameter.value().dtype() == mx::float16) {
      mx::array value = mx::astype(parameter.value(), mx::bfloat16);
      mx::eval(value);
      parameter.set({value, std::nullopt, std::nullopt});
    }
  });
}

bool DecoderModel::skips(const std::string& tensor) const {
  return tensor.find("self_attn.rotary_emb.inv_freq") != std::string::npos ||
      (spec_.tied && tensor == spec_.head + ".weight");
}

mx::array DecoderModel::multiplied_embedding(const mx::array& tokens) const {
  mx::array h = embed_tokens_(tokens);
  if (spec_.embedding_multiplier != 1) {
    mx::array multiplier =
        spec_.multiplier_rounding == MultiplierRounding::bfloat16
        ? mx::astype(
              number(spec_.embedding_multiplier, mx::bfloat16),
              h.dtype())
        : number(spec_.embedding_multiplier, h.dtype());
    h = mx::multiply(h, multiplier);
  }
  return h;
}

mx::array DecoderModel::embed(
    const mx::array& tokens,
    const cache::CacheList& cache) const {
  mx::array h = multiplied_embedding(tokens);
  if (positions_) {
    const auto& kv = cache::cache_as<cache::KVCache>(*cache.front());
    kernels::Position first = kv.position();
    int length = tokens.shape(1);
    if (first.number + length > spec_.learned_positions) {
      fail(
          ErrorKind::invalid_request,
          spec_.model_type,
          "position {} is past the {} that this model has",
          first.number + length,
          spec_.learned_positions);
    }
    h = mx::add(h, (*positions_)(first.of_tokens(length)));
  }
  return h;
}

mx::array DecoderModel::trunk(const mx::array& tokens, cache::CacheList& cache)
    const {
  mx::array h = embed(tokens, cache);
  Masks masks;
  for (size_t i = 0; i < layers_.size(); ++i) {
    if (fused_layers_ && FusedLayers::made(*cache[i])) {
      h = (*fused_layers_)(static_cast<int>(i), h, *cache[i]);
      continue;
    }
    const auto& mask = masks.of(layers_[i]->state(), *cache[i], h.shape(1));
    h = (*layers_[i])(h, mask, *cache[i]);
  }
  return h;
}

mx::array DecoderModel::head(const mx::array& h) const {
  return logits_of(h, spec_, lm_head_, embed_tokens_);
}

}  // namespace mlxx::models
